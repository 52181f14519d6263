module @jit_forward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x2xf32>, %arg1: tensor<2x2xf32>, %arg2: tensor<2x32xf32>, %arg3: tensor<2x32x32xf32>, %arg4: tensor<32x32xf32>, %arg5: tensor<32x1xf32>, %arg6: tensor<8x9xf16>, %arg7: tensor<9x8xf16>, %arg8: tensor<8x12xf16>, %arg9: tensor<27x23xbf16>, %arg10: tensor<23x29xbf16>, %arg11: tensor<29x20xbf16>) -> (tensor<1x32xf32> {jax.result_info = "result[0][0][0]"}, tensor<1x2xf32> {jax.result_info = "result[0][1][0]"}, tensor<2x2xf32> {jax.result_info = "result[0][1][1]"}, tensor<2x32xf32> {jax.result_info = "result[0][1][2]"}, tensor<1x2xf32> {jax.result_info = "result[0][1][3]"}, tensor<2x32x1xf32> {jax.result_info = "result[1][0][0]"}, tensor<2x32x32xf32> {jax.result_info = "result[1][1][0]"}, tensor<32x32xf32> {jax.result_info = "result[1][1][1]"}, tensor<32x1xf32> {jax.result_info = "result[1][1][2]"}, tensor<2x32x32xf32> {jax.result_info = "result[1][1][3]"}, tensor<8x12xf16> {jax.result_info = "result[2][0][0]"}, tensor<8x9xf16> {jax.result_info = "result[2][1][0]"}, tensor<9x8xf16> {jax.result_info = "result[2][1][1]"}, tensor<8x12xf16> {jax.result_info = "result[2][1][2]"}, tensor<8x8xf16> {jax.result_info = "result[2][1][3]"}, tensor<27x20xbf16> {jax.result_info = "result[3][0][0]"}, tensor<27x23xbf16> {jax.result_info = "result[3][1][0]"}, tensor<23x29xbf16> {jax.result_info = "result[3][1][1]"}, tensor<29x20xbf16> {jax.result_info = "result[3][1][2]"}, tensor<27x29xbf16> {jax.result_info = "result[3][1][3]"}, tensor<27x20xbf16> {jax.result_info = "result[3][2][0]"}) {
    %cst = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0:2 = call @decorated(%arg9, %arg10, %arg11) : (tensor<27x23xbf16>, tensor<23x29xbf16>, tensor<29x20xbf16>) -> (tensor<27x20xbf16>, tensor<27x29xbf16>)
    %1 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
    %2 = stablehlo.reduce_precision %1, format = e8m23 : tensor<1x2xf32>
    %3 = stablehlo.multiply %2, %2 : tensor<1x2xf32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<1x2xf32>, tensor<f32>) -> tensor<1xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<1xf32>) -> tensor<1x1xf32>
    %6 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<1x1xf32>
    %7 = stablehlo.divide %5, %6 : tensor<1x1xf32>
    %8 = stablehlo.sqrt %7 : tensor<1x1xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<1x2xf32>
    %10 = stablehlo.divide %2, %9 : tensor<1x2xf32>
    %11 = stablehlo.sine %10 : tensor<1x2xf32>
    %12 = stablehlo.dot_general %11, %arg2, contracting_dims = [1] x [0] : (tensor<1x2xf32>, tensor<2x32xf32>) -> tensor<1x32xf32>
    %13:2 = call @decorated_0(%arg6, %arg7, %arg8) : (tensor<8x9xf16>, tensor<9x8xf16>, tensor<8x12xf16>) -> (tensor<8x12xf16>, tensor<8x8xf16>)
    %14 = stablehlo.dot_general %arg3, %arg4, contracting_dims = [2] x [0] : (tensor<2x32x32xf32>, tensor<32x32xf32>) -> tensor<2x32x32xf32>
    %15 = stablehlo.reduce_precision %14, format = e8m23 : tensor<2x32x32xf32>
    %16 = stablehlo.multiply %15, %15 : tensor<2x32x32xf32>
    %17 = stablehlo.reduce(%16 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<2x32x32xf32>, tensor<f32>) -> tensor<2x32xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0, 1] : (tensor<2x32xf32>) -> tensor<2x32x1xf32>
    %19 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x32x1xf32>
    %20 = stablehlo.divide %18, %19 : tensor<2x32x1xf32>
    %21 = stablehlo.sqrt %20 : tensor<2x32x1xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2] : (tensor<2x32x1xf32>) -> tensor<2x32x32xf32>
    %23 = stablehlo.divide %15, %22 : tensor<2x32x32xf32>
    %24 = stablehlo.sine %23 : tensor<2x32x32xf32>
    %25 = stablehlo.dot_general %24, %arg5, contracting_dims = [2] x [0] : (tensor<2x32x32xf32>, tensor<32x1xf32>) -> tensor<2x32x1xf32>
    %26 = call @decorated_1(%arg9, %arg10, %arg11) : (tensor<27x23xbf16>, tensor<23x29xbf16>, tensor<29x20xbf16>) -> tensor<27x20xbf16>
    return %12, %arg0, %arg1, %arg2, %2, %25, %arg3, %arg4, %arg5, %15, %13#0, %arg6, %arg7, %arg8, %13#1, %0#0, %arg9, %arg10, %arg11, %0#1, %26 : tensor<1x32xf32>, tensor<1x2xf32>, tensor<2x2xf32>, tensor<2x32xf32>, tensor<1x2xf32>, tensor<2x32x1xf32>, tensor<2x32x32xf32>, tensor<32x32xf32>, tensor<32x1xf32>, tensor<2x32x32xf32>, tensor<8x12xf16>, tensor<8x9xf16>, tensor<9x8xf16>, tensor<8x12xf16>, tensor<8x8xf16>, tensor<27x20xbf16>, tensor<27x23xbf16>, tensor<23x29xbf16>, tensor<29x20xbf16>, tensor<27x29xbf16>, tensor<27x20xbf16>
  }
  func.func private @decorated(%arg0: tensor<27x23xbf16>, %arg1: tensor<23x29xbf16>, %arg2: tensor<29x20xbf16>) -> (tensor<27x20xbf16>, tensor<27x29xbf16>) {
    %cst = stablehlo.constant dense<2.900000e+01> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<27x23xbf16>, tensor<23x29xbf16>) -> tensor<27x29xbf16>
    %1 = stablehlo.reduce_precision %0, format = e8m7 : tensor<27x29xbf16>
    %2 = stablehlo.multiply %1, %1 : tensor<27x29xbf16>
    %3 = stablehlo.convert %2 : (tensor<27x29xbf16>) -> tensor<27x29xf32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<27x29xf32>, tensor<f32>) -> tensor<27xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<27xf32>) -> tensor<27x1xf32>
    %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<27x1xf32>
    %7 = stablehlo.divide %5, %6 : tensor<27x1xf32>
    %8 = stablehlo.convert %7 : (tensor<27x1xf32>) -> tensor<27x1xbf16>
    %9 = stablehlo.sqrt %8 : tensor<27x1xbf16>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<27x1xbf16>) -> tensor<27x29xbf16>
    %11 = stablehlo.divide %1, %10 : tensor<27x29xbf16>
    %12 = stablehlo.sine %11 : tensor<27x29xbf16>
    %13 = stablehlo.dot_general %12, %arg2, contracting_dims = [1] x [0] : (tensor<27x29xbf16>, tensor<29x20xbf16>) -> tensor<27x20xbf16>
    return %13, %1 : tensor<27x20xbf16>, tensor<27x29xbf16>
  }
  func.func private @decorated_0(%arg0: tensor<8x9xf16>, %arg1: tensor<9x8xf16>, %arg2: tensor<8x12xf16>) -> (tensor<8x12xf16>, tensor<8x8xf16>) {
    %cst = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x9xf16>, tensor<9x8xf16>) -> tensor<8x8xf16>
    %1 = stablehlo.reduce_precision %0, format = e5m10 : tensor<8x8xf16>
    %2 = stablehlo.multiply %1, %1 : tensor<8x8xf16>
    %3 = stablehlo.convert %2 : (tensor<8x8xf16>) -> tensor<8x8xf32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<8xf32>) -> tensor<8x1xf32>
    %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8x1xf32>
    %7 = stablehlo.divide %5, %6 : tensor<8x1xf32>
    %8 = stablehlo.convert %7 : (tensor<8x1xf32>) -> tensor<8x1xf16>
    %9 = stablehlo.sqrt %8 : tensor<8x1xf16>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<8x1xf16>) -> tensor<8x8xf16>
    %11 = stablehlo.divide %1, %10 : tensor<8x8xf16>
    %12 = stablehlo.sine %11 : tensor<8x8xf16>
    %13 = stablehlo.dot_general %12, %arg2, contracting_dims = [1] x [0] : (tensor<8x8xf16>, tensor<8x12xf16>) -> tensor<8x12xf16>
    return %13, %1 : tensor<8x12xf16>, tensor<8x8xf16>
  }
  func.func private @decorated_1(%arg0: tensor<27x23xbf16>, %arg1: tensor<23x29xbf16>, %arg2: tensor<29x20xbf16>) -> tensor<27x20xbf16> {
    %cst = stablehlo.constant dense<2.900000e+01> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<27x23xbf16>, tensor<23x29xbf16>) -> tensor<27x29xbf16>
    %1 = stablehlo.multiply %0, %0 : tensor<27x29xbf16>
    %2 = stablehlo.convert %1 : (tensor<27x29xbf16>) -> tensor<27x29xf32>
    %3 = stablehlo.reduce(%2 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<27x29xf32>, tensor<f32>) -> tensor<27xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0] : (tensor<27xf32>) -> tensor<27x1xf32>
    %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<27x1xf32>
    %6 = stablehlo.divide %4, %5 : tensor<27x1xf32>
    %7 = stablehlo.convert %6 : (tensor<27x1xf32>) -> tensor<27x1xbf16>
    %8 = stablehlo.sqrt %7 : tensor<27x1xbf16>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<27x1xbf16>) -> tensor<27x29xbf16>
    %10 = stablehlo.divide %0, %9 : tensor<27x29xbf16>
    %11 = stablehlo.sine %10 : tensor<27x29xbf16>
    %12 = stablehlo.dot_general %11, %arg2, contracting_dims = [1] x [0] : (tensor<27x29xbf16>, tensor<29x20xbf16>) -> tensor<27x20xbf16>
    return %12 : tensor<27x20xbf16>
  }
}
