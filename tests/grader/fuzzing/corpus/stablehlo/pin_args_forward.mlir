module @jit_forward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<9x9xf32>, %arg1: tensor<9x9xf32>, %arg2: tensor<10x9xf32>, %arg3: tensor<2x12x12xf32>, %arg4: tensor<2x2x12xf32>, %arg5: tensor<3x3xf16>, %arg6: tensor<3x3xf16>, %arg7: tensor<3x3xf16>, %arg8: tensor<12x3xf16>) -> (tensor<10x9xf32> {jax.result_info = "result[0][0][0]"}, tensor<9x9xf32> {jax.result_info = "result[0][1][0]"}, tensor<9x9xf32> {jax.result_info = "result[0][1][1]"}, tensor<10x9xf32> {jax.result_info = "result[0][1][2]"}, tensor<2x2x12xf32> {jax.result_info = "result[1][0][0]"}, tensor<2x12x12xf32> {jax.result_info = "result[1][1][0]"}, tensor<2x2x12xf32> {jax.result_info = "result[1][1][1]"}, tensor<12x3xf16> {jax.result_info = "result[2][0][0]"}, tensor<3x3xf16> {jax.result_info = "result[2][1][0]"}, tensor<3x3xf16> {jax.result_info = "result[2][1][1]"}, tensor<3x3xf16> {jax.result_info = "result[2][1][2]"}, tensor<12x3xf16> {jax.result_info = "result[2][1][3]"}, tensor<12x3xf16> {jax.result_info = "result[2][2][0]"}) {
    %0 = call @"<lambda>"(%arg5, %arg6, %arg7, %arg8) : (tensor<3x3xf16>, tensor<3x3xf16>, tensor<3x3xf16>, tensor<12x3xf16>) -> tensor<12x3xf16>
    %1 = stablehlo.dot_general %arg2, %arg0, contracting_dims = [1] x [0] : (tensor<10x9xf32>, tensor<9x9xf32>) -> tensor<10x9xf32>
    %2 = stablehlo.sine %1 : tensor<10x9xf32>
    %3 = stablehlo.dot_general %2, %arg1, contracting_dims = [1] x [0] : (tensor<10x9xf32>, tensor<9x9xf32>) -> tensor<10x9xf32>
    %4 = stablehlo.sine %3 : tensor<10x9xf32>
    %5 = stablehlo.dot_general %arg4, %arg3, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x2x12xf32>, tensor<2x12x12xf32>) -> tensor<2x2x12xf32>
    %6 = stablehlo.sine %5 : tensor<2x2x12xf32>
    %7 = call @"<lambda>_0"(%arg5, %arg6, %arg7, %arg8) : (tensor<3x3xf16>, tensor<3x3xf16>, tensor<3x3xf16>, tensor<12x3xf16>) -> tensor<12x3xf16>
    return %4, %arg0, %arg1, %arg2, %6, %arg3, %arg4, %0, %arg5, %arg6, %arg7, %arg8, %7 : tensor<10x9xf32>, tensor<9x9xf32>, tensor<9x9xf32>, tensor<10x9xf32>, tensor<2x2x12xf32>, tensor<2x12x12xf32>, tensor<2x2x12xf32>, tensor<12x3xf16>, tensor<3x3xf16>, tensor<3x3xf16>, tensor<3x3xf16>, tensor<12x3xf16>, tensor<12x3xf16>
  }
  func.func private @"<lambda>"(%arg0: tensor<3x3xf16>, %arg1: tensor<3x3xf16>, %arg2: tensor<3x3xf16>, %arg3: tensor<12x3xf16>) -> tensor<12x3xf16> {
    %0 = stablehlo.dot_general %arg3, %arg0, contracting_dims = [1] x [0] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    %1 = stablehlo.sine %0 : tensor<12x3xf16>
    %2 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [0] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    %3 = stablehlo.sine %2 : tensor<12x3xf16>
    %4 = stablehlo.dot_general %3, %arg2, contracting_dims = [1] x [0] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    %5 = stablehlo.sine %4 : tensor<12x3xf16>
    return %5 : tensor<12x3xf16>
  }
  func.func private @"<lambda>_0"(%arg0: tensor<3x3xf16>, %arg1: tensor<3x3xf16>, %arg2: tensor<3x3xf16>, %arg3: tensor<12x3xf16>) -> tensor<12x3xf16> {
    %0 = stablehlo.dot_general %arg3, %arg0, contracting_dims = [1] x [0] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    %1 = stablehlo.sine %0 : tensor<12x3xf16>
    %2 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [0] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    %3 = stablehlo.sine %2 : tensor<12x3xf16>
    %4 = stablehlo.dot_general %3, %arg2, contracting_dims = [1] x [0] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    %5 = stablehlo.sine %4 : tensor<12x3xf16>
    return %5 : tensor<12x3xf16>
  }
}
