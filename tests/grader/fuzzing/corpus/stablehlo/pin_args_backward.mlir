module @jit_backward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<9x9xf32>, %arg1: tensor<9x9xf32>, %arg2: tensor<10x9xf32>, %arg3: tensor<2x12x12xf32>, %arg4: tensor<2x2x12xf32>, %arg5: tensor<3x3xf16>, %arg6: tensor<3x3xf16>, %arg7: tensor<3x3xf16>, %arg8: tensor<12x3xf16>, %arg9: tensor<10x9xf32>, %arg10: tensor<2x2x12xf32>, %arg11: tensor<12x3xf16>) -> (tensor<9x9xf32> {jax.result_info = "result[0][0]"}, tensor<9x9xf32> {jax.result_info = "result[0][1]"}, tensor<10x9xf32> {jax.result_info = "result[0][2]"}, tensor<2x12x12xf32> {jax.result_info = "result[1][0]"}, tensor<2x2x12xf32> {jax.result_info = "result[1][1]"}, tensor<3x3xf16> {jax.result_info = "result[2][0]"}, tensor<3x3xf16> {jax.result_info = "result[2][1]"}, tensor<3x3xf16> {jax.result_info = "result[2][2]"}, tensor<12x3xf16> {jax.result_info = "result[2][3]"}) {
    %0:4 = call @"<lambda>"(%arg5, %arg6, %arg7, %arg8, %arg11) : (tensor<3x3xf16>, tensor<3x3xf16>, tensor<3x3xf16>, tensor<12x3xf16>, tensor<12x3xf16>) -> (tensor<3x3xf16>, tensor<3x3xf16>, tensor<3x3xf16>, tensor<12x3xf16>)
    %1:2 = stablehlo.optimization_barrier %arg2, %arg9 : tensor<10x9xf32>, tensor<10x9xf32>
    %2 = stablehlo.dot_general %1#0, %arg0, contracting_dims = [1] x [0] : (tensor<10x9xf32>, tensor<9x9xf32>) -> tensor<10x9xf32>
    %3 = stablehlo.sine %2 : tensor<10x9xf32>
    %4 = stablehlo.cosine %2 : tensor<10x9xf32>
    %5 = stablehlo.dot_general %3, %arg1, contracting_dims = [1] x [0] : (tensor<10x9xf32>, tensor<9x9xf32>) -> tensor<10x9xf32>
    %6 = stablehlo.cosine %5 : tensor<10x9xf32>
    %7 = stablehlo.multiply %1#1, %6 : tensor<10x9xf32>
    %8 = stablehlo.dot_general %7, %3, contracting_dims = [0] x [0] : (tensor<10x9xf32>, tensor<10x9xf32>) -> tensor<9x9xf32>
    %9 = stablehlo.transpose %8, dims = [1, 0] : (tensor<9x9xf32>) -> tensor<9x9xf32>
    %10 = stablehlo.dot_general %7, %arg1, contracting_dims = [1] x [1] : (tensor<10x9xf32>, tensor<9x9xf32>) -> tensor<10x9xf32>
    %11 = stablehlo.multiply %10, %4 : tensor<10x9xf32>
    %12 = stablehlo.dot_general %11, %1#0, contracting_dims = [0] x [0] : (tensor<10x9xf32>, tensor<10x9xf32>) -> tensor<9x9xf32>
    %13 = stablehlo.transpose %12, dims = [1, 0] : (tensor<9x9xf32>) -> tensor<9x9xf32>
    %14 = stablehlo.dot_general %11, %arg0, contracting_dims = [1] x [1] : (tensor<10x9xf32>, tensor<9x9xf32>) -> tensor<10x9xf32>
    %15:2 = stablehlo.optimization_barrier %arg4, %arg10 : tensor<2x2x12xf32>, tensor<2x2x12xf32>
    %16 = stablehlo.dot_general %15#0, %arg3, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x2x12xf32>, tensor<2x12x12xf32>) -> tensor<2x2x12xf32>
    %17 = stablehlo.cosine %16 : tensor<2x2x12xf32>
    %18 = stablehlo.multiply %15#1, %17 : tensor<2x2x12xf32>
    %19 = stablehlo.dot_general %18, %15#0, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x2x12xf32>, tensor<2x2x12xf32>) -> tensor<2x12x12xf32>
    %20 = stablehlo.transpose %19, dims = [0, 2, 1] : (tensor<2x12x12xf32>) -> tensor<2x12x12xf32>
    %21 = stablehlo.dot_general %18, %arg3, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x2x12xf32>, tensor<2x12x12xf32>) -> tensor<2x2x12xf32>
    return %13, %9, %14, %20, %21, %0#0, %0#1, %0#2, %0#3 : tensor<9x9xf32>, tensor<9x9xf32>, tensor<10x9xf32>, tensor<2x12x12xf32>, tensor<2x2x12xf32>, tensor<3x3xf16>, tensor<3x3xf16>, tensor<3x3xf16>, tensor<12x3xf16>
  }
  func.func private @"<lambda>"(%arg0: tensor<3x3xf16>, %arg1: tensor<3x3xf16>, %arg2: tensor<3x3xf16>, %arg3: tensor<12x3xf16>, %arg4: tensor<12x3xf16>) -> (tensor<3x3xf16>, tensor<3x3xf16>, tensor<3x3xf16>, tensor<12x3xf16>) {
    %0:2 = stablehlo.optimization_barrier %arg3, %arg4 : tensor<12x3xf16>, tensor<12x3xf16>
    %1 = stablehlo.dot_general %0#0, %arg0, contracting_dims = [1] x [0] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    %2 = stablehlo.sine %1 : tensor<12x3xf16>
    %3 = stablehlo.cosine %1 : tensor<12x3xf16>
    %4 = stablehlo.dot_general %2, %arg1, contracting_dims = [1] x [0] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    %5 = stablehlo.sine %4 : tensor<12x3xf16>
    %6 = stablehlo.cosine %4 : tensor<12x3xf16>
    %7 = stablehlo.dot_general %5, %arg2, contracting_dims = [1] x [0] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    %8 = stablehlo.cosine %7 : tensor<12x3xf16>
    %9 = stablehlo.multiply %0#1, %8 : tensor<12x3xf16>
    %10 = stablehlo.dot_general %9, %5, contracting_dims = [0] x [0] : (tensor<12x3xf16>, tensor<12x3xf16>) -> tensor<3x3xf16>
    %11 = stablehlo.transpose %10, dims = [1, 0] : (tensor<3x3xf16>) -> tensor<3x3xf16>
    %12 = stablehlo.dot_general %9, %arg2, contracting_dims = [1] x [1] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    %13 = stablehlo.multiply %12, %6 : tensor<12x3xf16>
    %14 = stablehlo.dot_general %13, %2, contracting_dims = [0] x [0] : (tensor<12x3xf16>, tensor<12x3xf16>) -> tensor<3x3xf16>
    %15 = stablehlo.transpose %14, dims = [1, 0] : (tensor<3x3xf16>) -> tensor<3x3xf16>
    %16 = stablehlo.dot_general %13, %arg1, contracting_dims = [1] x [1] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    %17 = stablehlo.multiply %16, %3 : tensor<12x3xf16>
    %18 = stablehlo.dot_general %17, %0#0, contracting_dims = [0] x [0] : (tensor<12x3xf16>, tensor<12x3xf16>) -> tensor<3x3xf16>
    %19 = stablehlo.transpose %18, dims = [1, 0] : (tensor<3x3xf16>) -> tensor<3x3xf16>
    %20 = stablehlo.dot_general %17, %arg0, contracting_dims = [1] x [1] : (tensor<12x3xf16>, tensor<3x3xf16>) -> tensor<12x3xf16>
    return %19, %15, %11, %20 : tensor<3x3xf16>, tensor<3x3xf16>, tensor<3x3xf16>, tensor<12x3xf16>
  }
}
