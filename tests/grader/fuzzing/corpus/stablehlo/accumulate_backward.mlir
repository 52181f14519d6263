module @jit_backward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<8x64xf32>, %arg1: tensor<64x8xf32>, %arg2: tensor<6x64xf32>, %arg3: tensor<64x6xf32>, %arg4: tensor<6x9xf16>, %arg5: tensor<9x6xf16>, %arg6: tensor<7x11xf32>, %arg7: tensor<11x7xf32>, %arg8: tensor<f32>, %arg9: tensor<f32>, %arg10: tensor<f16>, %arg11: tensor<f32>) -> (tensor<8x64xf32> {jax.result_info = "result[0][0]"}, tensor<64x8xf32> {jax.result_info = "result[0][1]"}, tensor<6x64xf32> {jax.result_info = "result[1][0]"}, tensor<64x6xf32> {jax.result_info = "result[1][1]"}, tensor<6x9xf16> {jax.result_info = "result[2][0]"}, tensor<9x6xf16> {jax.result_info = "result[2][1]"}, tensor<7x11xf32> {jax.result_info = "result[3][0]"}, tensor<11x7xf32> {jax.result_info = "result[3][1]"}) {
    %0 = stablehlo.broadcast_in_dim %arg11, dims = [] : (tensor<f32>) -> tensor<7x11xf32>
    %1 = stablehlo.multiply %0, %arg6 : tensor<7x11xf32>
    %2 = stablehlo.broadcast_in_dim %arg11, dims = [] : (tensor<f32>) -> tensor<11x7xf32>
    %3 = stablehlo.multiply %2, %arg7 : tensor<11x7xf32>
    %4 = stablehlo.broadcast_in_dim %arg8, dims = [] : (tensor<f32>) -> tensor<8x64xf32>
    %5 = stablehlo.multiply %4, %arg0 : tensor<8x64xf32>
    %6 = stablehlo.broadcast_in_dim %arg8, dims = [] : (tensor<f32>) -> tensor<64x8xf32>
    %7 = stablehlo.multiply %6, %arg1 : tensor<64x8xf32>
    %8:2 = call @value(%arg4, %arg5, %arg10) : (tensor<6x9xf16>, tensor<9x6xf16>, tensor<f16>) -> (tensor<6x9xf16>, tensor<9x6xf16>)
    %9 = stablehlo.broadcast_in_dim %arg9, dims = [] : (tensor<f32>) -> tensor<6x64xf32>
    %10 = stablehlo.multiply %9, %arg2 : tensor<6x64xf32>
    %11 = stablehlo.broadcast_in_dim %arg9, dims = [] : (tensor<f32>) -> tensor<64x6xf32>
    %12 = stablehlo.multiply %11, %arg3 : tensor<64x6xf32>
    return %5, %7, %10, %12, %8#0, %8#1, %1, %3 : tensor<8x64xf32>, tensor<64x8xf32>, tensor<6x64xf32>, tensor<64x6xf32>, tensor<6x9xf16>, tensor<9x6xf16>, tensor<7x11xf32>, tensor<11x7xf32>
  }
  func.func private @value(%arg0: tensor<6x9xf16>, %arg1: tensor<9x6xf16>, %arg2: tensor<f16>) -> (tensor<6x9xf16>, tensor<9x6xf16>) {
    %0 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f16>) -> tensor<6x9xf16>
    %1 = stablehlo.multiply %0, %arg0 : tensor<6x9xf16>
    %2 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f16>) -> tensor<9x6xf16>
    %3 = stablehlo.multiply %2, %arg1 : tensor<9x6xf16>
    return %1, %3 : tensor<6x9xf16>, tensor<9x6xf16>
  }
}
