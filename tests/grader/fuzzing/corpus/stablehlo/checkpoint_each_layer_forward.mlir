module @jit_forward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<32x32xf32>, %arg1: tensor<32x32xf32>, %arg2: tensor<1x32xf32>, %arg3: tensor<32xf32>, %arg4: tensor<1x1xf32>, %arg5: tensor<1x1xf32>, %arg6: tensor<32x1xf32>, %arg7: tensor<3x1xf32>, %arg8: tensor<4x3xf16>, %arg9: tensor<2x4xf16>, %arg10: tensor<7x2xf16>, %arg11: tensor<3xf16>, %arg12: tensor<23x27xbf16>, %arg13: tensor<29x23xbf16>, %arg14: tensor<20x29xbf16>, %arg15: tensor<27xbf16>) -> (tensor<1xf32> {jax.result_info = "result[0][0][0]"}, tensor<32x32xf32> {jax.result_info = "result[0][1][0]"}, tensor<32x32xf32> {jax.result_info = "result[0][1][1]"}, tensor<1x32xf32> {jax.result_info = "result[0][1][2]"}, tensor<32xf32> {jax.result_info = "result[0][1][3]"}, tensor<32xf32> {jax.result_info = "result[0][1][4]"}, tensor<32xf32> {jax.result_info = "result[0][1][5]"}, tensor<3x32xf32> {jax.result_info = "result[1][0][0]"}, tensor<1x1xf32> {jax.result_info = "result[1][1][0]"}, tensor<1x1xf32> {jax.result_info = "result[1][1][1]"}, tensor<32x1xf32> {jax.result_info = "result[1][1][2]"}, tensor<3x1xf32> {jax.result_info = "result[1][1][3]"}, tensor<3x1xf32> {jax.result_info = "result[1][1][4]"}, tensor<3x1xf32> {jax.result_info = "result[1][1][5]"}, tensor<7xf16> {jax.result_info = "result[2][0][0]"}, tensor<4x3xf16> {jax.result_info = "result[2][1][0]"}, tensor<2x4xf16> {jax.result_info = "result[2][1][1]"}, tensor<7x2xf16> {jax.result_info = "result[2][1][2]"}, tensor<3xf16> {jax.result_info = "result[2][1][3]"}, tensor<4xf16> {jax.result_info = "result[2][1][4]"}, tensor<2xf16> {jax.result_info = "result[2][1][5]"}, tensor<20xbf16> {jax.result_info = "result[3][0][0]"}, tensor<23x27xbf16> {jax.result_info = "result[3][1][0]"}, tensor<29x23xbf16> {jax.result_info = "result[3][1][1]"}, tensor<20x29xbf16> {jax.result_info = "result[3][1][2]"}, tensor<27xbf16> {jax.result_info = "result[3][1][3]"}, tensor<23xbf16> {jax.result_info = "result[3][1][4]"}, tensor<29xbf16> {jax.result_info = "result[3][1][5]"}, tensor<20xbf16> {jax.result_info = "result[3][2][0]"}) {
    %0:3 = call @wrapped_at_each_call(%arg12, %arg13, %arg14, %arg15) : (tensor<23x27xbf16>, tensor<29x23xbf16>, tensor<20x29xbf16>, tensor<27xbf16>) -> (tensor<20xbf16>, tensor<23xbf16>, tensor<29xbf16>)
    %1 = stablehlo.dot_general %arg0, %arg3, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32xf32>) -> tensor<32xf32>
    %2 = stablehlo.sine %1 : tensor<32xf32>
    %3 = stablehlo.dot_general %arg1, %2, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32xf32>) -> tensor<32xf32>
    %4 = stablehlo.sine %3 : tensor<32xf32>
    %5 = stablehlo.dot_general %arg2, %4, contracting_dims = [1] x [0] : (tensor<1x32xf32>, tensor<32xf32>) -> tensor<1xf32>
    %6 = stablehlo.sine %5 : tensor<1xf32>
    %7:3 = call @wrapped_at_each_call_0(%arg8, %arg9, %arg10, %arg11) : (tensor<4x3xf16>, tensor<2x4xf16>, tensor<7x2xf16>, tensor<3xf16>) -> (tensor<7xf16>, tensor<4xf16>, tensor<2xf16>)
    %8 = stablehlo.dot_general %arg4, %arg7, contracting_dims = [1] x [1] : (tensor<1x1xf32>, tensor<3x1xf32>) -> tensor<1x3xf32>
    %9 = stablehlo.sine %8 : tensor<1x3xf32>
    %10 = stablehlo.transpose %9, dims = [1, 0] : (tensor<1x3xf32>) -> tensor<3x1xf32>
    %11 = stablehlo.dot_general %arg5, %10, contracting_dims = [1] x [1] : (tensor<1x1xf32>, tensor<3x1xf32>) -> tensor<1x3xf32>
    %12 = stablehlo.sine %11 : tensor<1x3xf32>
    %13 = stablehlo.transpose %12, dims = [1, 0] : (tensor<1x3xf32>) -> tensor<3x1xf32>
    %14 = stablehlo.dot_general %arg6, %13, contracting_dims = [1] x [1] : (tensor<32x1xf32>, tensor<3x1xf32>) -> tensor<32x3xf32>
    %15 = stablehlo.sine %14 : tensor<32x3xf32>
    %16 = stablehlo.transpose %15, dims = [1, 0] : (tensor<32x3xf32>) -> tensor<3x32xf32>
    %17 = call @wrapped_at_each_call_1(%arg12, %arg13, %arg14, %arg15) : (tensor<23x27xbf16>, tensor<29x23xbf16>, tensor<20x29xbf16>, tensor<27xbf16>) -> tensor<20xbf16>
    return %6, %arg0, %arg1, %arg2, %arg3, %2, %4, %16, %arg4, %arg5, %arg6, %arg7, %10, %13, %7#0, %arg8, %arg9, %arg10, %arg11, %7#1, %7#2, %0#0, %arg12, %arg13, %arg14, %arg15, %0#1, %0#2, %17 : tensor<1xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<1x32xf32>, tensor<32xf32>, tensor<32xf32>, tensor<32xf32>, tensor<3x32xf32>, tensor<1x1xf32>, tensor<1x1xf32>, tensor<32x1xf32>, tensor<3x1xf32>, tensor<3x1xf32>, tensor<3x1xf32>, tensor<7xf16>, tensor<4x3xf16>, tensor<2x4xf16>, tensor<7x2xf16>, tensor<3xf16>, tensor<4xf16>, tensor<2xf16>, tensor<20xbf16>, tensor<23x27xbf16>, tensor<29x23xbf16>, tensor<20x29xbf16>, tensor<27xbf16>, tensor<23xbf16>, tensor<29xbf16>, tensor<20xbf16>
  }
  func.func private @wrapped_at_each_call(%arg0: tensor<23x27xbf16>, %arg1: tensor<29x23xbf16>, %arg2: tensor<20x29xbf16>, %arg3: tensor<27xbf16>) -> (tensor<20xbf16>, tensor<23xbf16>, tensor<29xbf16>) {
    %0 = stablehlo.dot_general %arg0, %arg3, contracting_dims = [1] x [0] : (tensor<23x27xbf16>, tensor<27xbf16>) -> tensor<23xbf16>
    %1 = stablehlo.sine %0 : tensor<23xbf16>
    %2 = stablehlo.dot_general %arg1, %1, contracting_dims = [1] x [0] : (tensor<29x23xbf16>, tensor<23xbf16>) -> tensor<29xbf16>
    %3 = stablehlo.sine %2 : tensor<29xbf16>
    %4 = stablehlo.dot_general %arg2, %3, contracting_dims = [1] x [0] : (tensor<20x29xbf16>, tensor<29xbf16>) -> tensor<20xbf16>
    %5 = stablehlo.sine %4 : tensor<20xbf16>
    return %5, %1, %3 : tensor<20xbf16>, tensor<23xbf16>, tensor<29xbf16>
  }
  func.func private @wrapped_at_each_call_0(%arg0: tensor<4x3xf16>, %arg1: tensor<2x4xf16>, %arg2: tensor<7x2xf16>, %arg3: tensor<3xf16>) -> (tensor<7xf16>, tensor<4xf16>, tensor<2xf16>) {
    %0 = stablehlo.dot_general %arg0, %arg3, contracting_dims = [1] x [0] : (tensor<4x3xf16>, tensor<3xf16>) -> tensor<4xf16>
    %1 = stablehlo.sine %0 : tensor<4xf16>
    %2 = stablehlo.dot_general %arg1, %1, contracting_dims = [1] x [0] : (tensor<2x4xf16>, tensor<4xf16>) -> tensor<2xf16>
    %3 = stablehlo.sine %2 : tensor<2xf16>
    %4 = stablehlo.dot_general %arg2, %3, contracting_dims = [1] x [0] : (tensor<7x2xf16>, tensor<2xf16>) -> tensor<7xf16>
    %5 = stablehlo.sine %4 : tensor<7xf16>
    return %5, %1, %3 : tensor<7xf16>, tensor<4xf16>, tensor<2xf16>
  }
  func.func private @wrapped_at_each_call_1(%arg0: tensor<23x27xbf16>, %arg1: tensor<29x23xbf16>, %arg2: tensor<20x29xbf16>, %arg3: tensor<27xbf16>) -> tensor<20xbf16> {
    %0 = stablehlo.dot_general %arg0, %arg3, contracting_dims = [1] x [0] : (tensor<23x27xbf16>, tensor<27xbf16>) -> tensor<23xbf16>
    %1 = stablehlo.sine %0 : tensor<23xbf16>
    %2 = stablehlo.dot_general %arg1, %1, contracting_dims = [1] x [0] : (tensor<29x23xbf16>, tensor<23xbf16>) -> tensor<29xbf16>
    %3 = stablehlo.sine %2 : tensor<29xbf16>
    %4 = stablehlo.dot_general %arg2, %3, contracting_dims = [1] x [0] : (tensor<20x29xbf16>, tensor<29xbf16>) -> tensor<20xbf16>
    %5 = stablehlo.sine %4 : tensor<20xbf16>
    return %5 : tensor<20xbf16>
  }
}
