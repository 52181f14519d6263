module @jit_forward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<32x32xf32>, %arg1: tensor<32x32xf32>, %arg2: tensor<600x32xf32>, %arg3: tensor<2x1x1xbf16>, %arg4: tensor<1x1xbf16>, %arg5: tensor<22x1x2xbf16>, %arg6: tensor<2x2x29x29xf32>, %arg7: tensor<2x29x29xf32>, %arg8: tensor<2x2x16x29xf32>, %arg9: tensor<1x23x23xf16>, %arg10: tensor<23x23xf16>, %arg11: tensor<1x1x23xf16>) -> (tensor<f32> {jax.result_info = "result[0][0][0]"}, tensor<32x32xf32> {jax.result_info = "result[0][1][0]"}, tensor<32x32xf32> {jax.result_info = "result[0][1][1]"}, tensor<600x32xf32> {jax.result_info = "result[0][1][2]"}, tensor<600x32xf32> {jax.result_info = "result[0][1][3]"}, tensor<600x32xf32> {jax.result_info = "result[0][1][4]"}, tensor<2x2xbf16> {jax.result_info = "result[1][0][0]"}, tensor<2x1x1xbf16> {jax.result_info = "result[1][1][0]"}, tensor<1x1xbf16> {jax.result_info = "result[1][1][1]"}, tensor<22x1x2xbf16> {jax.result_info = "result[1][1][2]"}, tensor<22x2x2x1xbf16> {jax.result_info = "result[1][1][3]"}, tensor<22x2x2x1xbf16> {jax.result_info = "result[1][1][4]"}, tensor<2x2xf32> {jax.result_info = "result[2][0][0]"}, tensor<2x2x29x29xf32> {jax.result_info = "result[2][1][0]"}, tensor<2x29x29xf32> {jax.result_info = "result[2][1][1]"}, tensor<2x2x16x29xf32> {jax.result_info = "result[2][1][2]"}, tensor<1xf16> {jax.result_info = "result[3][0][0]"}, tensor<1x23x23xf16> {jax.result_info = "result[3][1][0]"}, tensor<23x23xf16> {jax.result_info = "result[3][1][1]"}, tensor<1x1x23xf16> {jax.result_info = "result[3][1][2]"}, tensor<1x1x23xf16> {jax.result_info = "result[3][1][3]"}, tensor<1xf16> {jax.result_info = "result[3][2][0]"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg11, %arg9, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x1x23xf16>, tensor<1x23x23xf16>) -> tensor<1x1x23xf16>
    %1 = call @relu(%0) : (tensor<1x1x23xf16>) -> tensor<1x1x23xf16>
    %2 = stablehlo.dot_general %1, %arg10, contracting_dims = [2] x [0] : (tensor<1x1x23xf16>, tensor<23x23xf16>) -> tensor<1x1x23xf16>
    %3 = stablehlo.reduce_precision %2, format = e5m10 : tensor<1x1x23xf16>
    %4 = stablehlo.multiply %3, %3 : tensor<1x1x23xf16>
    %5 = stablehlo.convert %4 : (tensor<1x1x23xf16>) -> tensor<1x1x23xf32>
    %6 = stablehlo.reduce(%5 init: %cst) applies stablehlo.add across dimensions = [1, 2] : (tensor<1x1x23xf32>, tensor<f32>) -> tensor<1xf32>
    %7 = stablehlo.convert %6 : (tensor<1xf32>) -> tensor<1xf16>
    %8 = stablehlo.dot_general %arg2, %arg0, contracting_dims = [1] x [0] : (tensor<600x32xf32>, tensor<32x32xf32>) -> tensor<600x32xf32>
    %9 = stablehlo.reduce_precision %8, format = e8m23 : tensor<600x32xf32>
    %10 = call @relu_0(%9) : (tensor<600x32xf32>) -> tensor<600x32xf32>
    %11 = stablehlo.dot_general %10, %arg1, contracting_dims = [1] x [0] : (tensor<600x32xf32>, tensor<32x32xf32>) -> tensor<600x32xf32>
    %12 = stablehlo.reduce_precision %11, format = e8m23 : tensor<600x32xf32>
    %13 = stablehlo.multiply %12, %12 : tensor<600x32xf32>
    %14 = stablehlo.reduce(%13 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<600x32xf32>, tensor<f32>) -> tensor<f32>
    %15 = call @called_where_it_is_used(%arg6, %arg7, %arg8) : (tensor<2x2x29x29xf32>, tensor<2x29x29xf32>, tensor<2x2x16x29xf32>) -> tensor<2x2xf32>
    %16 = stablehlo.dot_general %arg5, %arg3, contracting_dims = [1] x [1] : (tensor<22x1x2xbf16>, tensor<2x1x1xbf16>) -> tensor<22x2x2x1xbf16>
    %17 = stablehlo.reduce_precision %16, format = e8m7 : tensor<22x2x2x1xbf16>
    %18 = call @relu_2(%17) : (tensor<22x2x2x1xbf16>) -> tensor<22x2x2x1xbf16>
    %19 = stablehlo.dot_general %18, %arg4, contracting_dims = [3] x [0] : (tensor<22x2x2x1xbf16>, tensor<1x1xbf16>) -> tensor<22x2x2x1xbf16>
    %20 = stablehlo.reduce_precision %19, format = e8m7 : tensor<22x2x2x1xbf16>
    %21 = stablehlo.multiply %20, %20 : tensor<22x2x2x1xbf16>
    %22 = stablehlo.convert %21 : (tensor<22x2x2x1xbf16>) -> tensor<22x2x2x1xf32>
    %23 = stablehlo.reduce(%22 init: %cst) applies stablehlo.add across dimensions = [0, 3] : (tensor<22x2x2x1xf32>, tensor<f32>) -> tensor<2x2xf32>
    %24 = stablehlo.convert %23 : (tensor<2x2xf32>) -> tensor<2x2xbf16>
    %25 = stablehlo.dot_general %arg11, %arg9, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x1x23xf16>, tensor<1x23x23xf16>) -> tensor<1x1x23xf16>
    %26 = call @relu(%25) : (tensor<1x1x23xf16>) -> tensor<1x1x23xf16>
    %27 = stablehlo.dot_general %26, %arg10, contracting_dims = [2] x [0] : (tensor<1x1x23xf16>, tensor<23x23xf16>) -> tensor<1x1x23xf16>
    %28 = stablehlo.multiply %27, %27 : tensor<1x1x23xf16>
    %29 = stablehlo.convert %28 : (tensor<1x1x23xf16>) -> tensor<1x1x23xf32>
    %30 = stablehlo.reduce(%29 init: %cst) applies stablehlo.add across dimensions = [1, 2] : (tensor<1x1x23xf32>, tensor<f32>) -> tensor<1xf32>
    %31 = stablehlo.convert %30 : (tensor<1xf32>) -> tensor<1xf16>
    return %14, %arg0, %arg1, %arg2, %9, %12, %24, %arg3, %arg4, %arg5, %17, %20, %15, %arg6, %arg7, %arg8, %7, %arg9, %arg10, %arg11, %3, %31 : tensor<f32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<600x32xf32>, tensor<600x32xf32>, tensor<600x32xf32>, tensor<2x2xbf16>, tensor<2x1x1xbf16>, tensor<1x1xbf16>, tensor<22x1x2xbf16>, tensor<22x2x2x1xbf16>, tensor<22x2x2x1xbf16>, tensor<2x2xf32>, tensor<2x2x29x29xf32>, tensor<2x29x29xf32>, tensor<2x2x16x29xf32>, tensor<1xf16>, tensor<1x23x23xf16>, tensor<23x23xf16>, tensor<1x1x23xf16>, tensor<1x1x23xf16>, tensor<1xf16>
  }
  func.func private @relu(%arg0: tensor<1x1x23xf16>) -> tensor<1x1x23xf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f16>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<1x1x23xf16>
    %1 = stablehlo.maximum %arg0, %0 : tensor<1x1x23xf16>
    return %1 : tensor<1x1x23xf16>
  }
  func.func private @relu_0(%arg0: tensor<600x32xf32>) -> tensor<600x32xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<600x32xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<600x32xf32>
    return %1 : tensor<600x32xf32>
  }
  func.func private @called_where_it_is_used(%arg0: tensor<2x2x29x29xf32>, %arg1: tensor<2x29x29xf32>, %arg2: tensor<2x2x16x29xf32>) -> tensor<2x2xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg2, %arg0, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2] : (tensor<2x2x16x29xf32>, tensor<2x2x29x29xf32>) -> tensor<2x2x16x29xf32>
    %1 = call @relu_1(%0) : (tensor<2x2x16x29xf32>) -> tensor<2x2x16x29xf32>
    %2 = stablehlo.dot_general %1, %arg1, batching_dims = [0] x [0], contracting_dims = [3] x [1] : (tensor<2x2x16x29xf32>, tensor<2x29x29xf32>) -> tensor<2x2x16x29xf32>
    %3 = stablehlo.multiply %2, %2 : tensor<2x2x16x29xf32>
    %4 = stablehlo.reduce(%3 init: %cst) applies stablehlo.add across dimensions = [2, 3] : (tensor<2x2x16x29xf32>, tensor<f32>) -> tensor<2x2xf32>
    return %4 : tensor<2x2xf32>
  }
  func.func private @relu_1(%arg0: tensor<2x2x16x29xf32>) -> tensor<2x2x16x29xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2x16x29xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x2x16x29xf32>
    return %1 : tensor<2x2x16x29xf32>
  }
  func.func private @relu_2(%arg0: tensor<22x2x2x1xbf16>) -> tensor<22x2x2x1xbf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<22x2x2x1xbf16>
    %1 = stablehlo.maximum %arg0, %0 : tensor<22x2x2x1xbf16>
    return %1 : tensor<22x2x2x1xbf16>
  }
}
