module @jit_backward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<32x32xf32>, %arg1: tensor<32x32xf32>, %arg2: tensor<600x32xf32>, %arg3: tensor<600x32xf32>, %arg4: tensor<600x32xf32>, %arg5: tensor<2x1x1xbf16>, %arg6: tensor<1x1xbf16>, %arg7: tensor<22x1x2xbf16>, %arg8: tensor<22x2x2x1xbf16>, %arg9: tensor<22x2x2x1xbf16>, %arg10: tensor<2x2x29x29xf32>, %arg11: tensor<2x29x29xf32>, %arg12: tensor<2x2x16x29xf32>, %arg13: tensor<1x23x23xf16>, %arg14: tensor<23x23xf16>, %arg15: tensor<1x1x23xf16>, %arg16: tensor<1x1x23xf16>, %arg17: tensor<f32>, %arg18: tensor<2x2xbf16>, %arg19: tensor<2x2xf32>, %arg20: tensor<1xf16>) -> (tensor<32x32xf32> {jax.result_info = "result[0][0]"}, tensor<32x32xf32> {jax.result_info = "result[0][1]"}, tensor<600x32xf32> {jax.result_info = "result[0][2]"}, tensor<2x1x1xbf16> {jax.result_info = "result[1][0]"}, tensor<1x1xbf16> {jax.result_info = "result[1][1]"}, tensor<22x1x2xbf16> {jax.result_info = "result[1][2]"}, tensor<2x2x29x29xf32> {jax.result_info = "result[2][0]"}, tensor<2x29x29xf32> {jax.result_info = "result[2][1]"}, tensor<2x2x16x29xf32> {jax.result_info = "result[2][2]"}, tensor<1x23x23xf16> {jax.result_info = "result[3][0]"}, tensor<23x23xf16> {jax.result_info = "result[3][1]"}, tensor<1x1x23xf16> {jax.result_info = "result[3][2]"}) {
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<bf16>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %cst_1 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_3 = stablehlo.constant dense<2.000000e+00> : tensor<f16>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f16>
    %0:5 = stablehlo.optimization_barrier %arg16, %arg13, %arg14, %arg15, %arg20 : tensor<1x1x23xf16>, tensor<1x23x23xf16>, tensor<23x23xf16>, tensor<1x1x23xf16>, tensor<1xf16>
    %1 = stablehlo.dot_general %0#3, %0#1, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x1x23xf16>, tensor<1x23x23xf16>) -> tensor<1x1x23xf16>
    %2 = call @relu(%1) : (tensor<1x1x23xf16>) -> tensor<1x1x23xf16>
    %3 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f16>) -> tensor<1x1x23xf16>
    %4 = stablehlo.compare GT, %1, %3, FLOAT : (tensor<1x1x23xf16>, tensor<1x1x23xf16>) -> tensor<1x1x23xi1>
    %5 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f16>) -> tensor<1x1x23xf16>
    %6 = stablehlo.multiply %5, %0#0 : tensor<1x1x23xf16>
    %7 = stablehlo.convert %0#4 : (tensor<1xf16>) -> tensor<1xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<1xf32>) -> tensor<1x1x23xf32>
    %9 = stablehlo.convert %8 : (tensor<1x1x23xf32>) -> tensor<1x1x23xf16>
    %10 = stablehlo.multiply %9, %6 : tensor<1x1x23xf16>
    %11 = stablehlo.dot_general %10, %2, contracting_dims = [0, 1] x [0, 1] : (tensor<1x1x23xf16>, tensor<1x1x23xf16>) -> tensor<23x23xf16>
    %12 = stablehlo.transpose %11, dims = [1, 0] : (tensor<23x23xf16>) -> tensor<23x23xf16>
    %13 = stablehlo.dot_general %10, %0#2, contracting_dims = [2] x [1] : (tensor<1x1x23xf16>, tensor<23x23xf16>) -> tensor<1x1x23xf16>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f16>) -> tensor<1x1x23xf16>
    %15 = stablehlo.select %4, %13, %14 : tensor<1x1x23xi1>, tensor<1x1x23xf16>
    %16 = stablehlo.dot_general %15, %0#3, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<1x1x23xf16>, tensor<1x1x23xf16>) -> tensor<1x23x23xf16>
    %17 = stablehlo.transpose %16, dims = [0, 2, 1] : (tensor<1x23x23xf16>) -> tensor<1x23x23xf16>
    %18 = stablehlo.dot_general %15, %0#1, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<1x1x23xf16>, tensor<1x23x23xf16>) -> tensor<1x1x23xf16>
    %19:6 = stablehlo.optimization_barrier %arg3, %arg4, %arg0, %arg1, %arg2, %arg17 : tensor<600x32xf32>, tensor<600x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<600x32xf32>, tensor<f32>
    %20 = call @relu_0(%19#0) : (tensor<600x32xf32>) -> tensor<600x32xf32>
    %21 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<600x32xf32>
    %22 = stablehlo.compare GT, %19#0, %21, FLOAT : (tensor<600x32xf32>, tensor<600x32xf32>) -> tensor<600x32xi1>
    %23 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<600x32xf32>
    %24 = stablehlo.multiply %23, %19#1 : tensor<600x32xf32>
    %25 = stablehlo.broadcast_in_dim %19#5, dims = [] : (tensor<f32>) -> tensor<600x32xf32>
    %26 = stablehlo.multiply %25, %24 : tensor<600x32xf32>
    %27 = stablehlo.dot_general %26, %20, contracting_dims = [0] x [0] : (tensor<600x32xf32>, tensor<600x32xf32>) -> tensor<32x32xf32>
    %28 = stablehlo.transpose %27, dims = [1, 0] : (tensor<32x32xf32>) -> tensor<32x32xf32>
    %29 = stablehlo.dot_general %26, %19#3, contracting_dims = [1] x [1] : (tensor<600x32xf32>, tensor<32x32xf32>) -> tensor<600x32xf32>
    %30 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<600x32xf32>
    %31 = stablehlo.select %22, %29, %30 : tensor<600x32xi1>, tensor<600x32xf32>
    %32 = stablehlo.dot_general %31, %19#4, contracting_dims = [0] x [0] : (tensor<600x32xf32>, tensor<600x32xf32>) -> tensor<32x32xf32>
    %33 = stablehlo.transpose %32, dims = [1, 0] : (tensor<32x32xf32>) -> tensor<32x32xf32>
    %34 = stablehlo.dot_general %31, %19#2, contracting_dims = [1] x [1] : (tensor<600x32xf32>, tensor<32x32xf32>) -> tensor<600x32xf32>
    %35:3 = call @called_where_it_is_used(%arg10, %arg11, %arg12, %arg19) : (tensor<2x2x29x29xf32>, tensor<2x29x29xf32>, tensor<2x2x16x29xf32>, tensor<2x2xf32>) -> (tensor<2x2x29x29xf32>, tensor<2x29x29xf32>, tensor<2x2x16x29xf32>)
    %36:6 = stablehlo.optimization_barrier %arg8, %arg9, %arg5, %arg6, %arg7, %arg18 : tensor<22x2x2x1xbf16>, tensor<22x2x2x1xbf16>, tensor<2x1x1xbf16>, tensor<1x1xbf16>, tensor<22x1x2xbf16>, tensor<2x2xbf16>
    %37 = call @relu_2(%36#0) : (tensor<22x2x2x1xbf16>) -> tensor<22x2x2x1xbf16>
    %38 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<bf16>) -> tensor<22x2x2x1xbf16>
    %39 = stablehlo.compare GT, %36#0, %38, FLOAT : (tensor<22x2x2x1xbf16>, tensor<22x2x2x1xbf16>) -> tensor<22x2x2x1xi1>
    %40 = stablehlo.transpose %39, dims = [1, 2, 0, 3] : (tensor<22x2x2x1xi1>) -> tensor<2x2x22x1xi1>
    %41 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<22x2x2x1xbf16>
    %42 = stablehlo.multiply %41, %36#1 : tensor<22x2x2x1xbf16>
    %43 = stablehlo.convert %36#5 : (tensor<2x2xbf16>) -> tensor<2x2xf32>
    %44 = stablehlo.broadcast_in_dim %43, dims = [1, 2] : (tensor<2x2xf32>) -> tensor<22x2x2x1xf32>
    %45 = stablehlo.convert %44 : (tensor<22x2x2x1xf32>) -> tensor<22x2x2x1xbf16>
    %46 = stablehlo.multiply %45, %42 : tensor<22x2x2x1xbf16>
    %47 = stablehlo.dot_general %46, %37, contracting_dims = [0, 1, 2] x [0, 1, 2] : (tensor<22x2x2x1xbf16>, tensor<22x2x2x1xbf16>) -> tensor<1x1xbf16>
    %48 = stablehlo.transpose %47, dims = [1, 0] : (tensor<1x1xbf16>) -> tensor<1x1xbf16>
    %49 = stablehlo.dot_general %46, %36#3, contracting_dims = [3] x [1] : (tensor<22x2x2x1xbf16>, tensor<1x1xbf16>) -> tensor<22x2x2x1xbf16>
    %50 = stablehlo.transpose %49, dims = [1, 0, 2, 3] : (tensor<22x2x2x1xbf16>) -> tensor<2x22x2x1xbf16>
    %51 = stablehlo.transpose %50, dims = [0, 2, 1, 3] : (tensor<2x22x2x1xbf16>) -> tensor<2x2x22x1xbf16>
    %52 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<bf16>) -> tensor<2x2x22x1xbf16>
    %53 = stablehlo.select %40, %51, %52 : tensor<2x2x22x1xi1>, tensor<2x2x22x1xbf16>
    %54 = stablehlo.transpose %53, dims = [2, 0, 1, 3] : (tensor<2x2x22x1xbf16>) -> tensor<22x2x2x1xbf16>
    %55 = stablehlo.dot_general %54, %36#4, contracting_dims = [0, 1] x [0, 2] : (tensor<22x2x2x1xbf16>, tensor<22x1x2xbf16>) -> tensor<2x1x1xbf16>
    %56 = stablehlo.transpose %55, dims = [0, 2, 1] : (tensor<2x1x1xbf16>) -> tensor<2x1x1xbf16>
    %57 = stablehlo.dot_general %54, %36#2, contracting_dims = [2, 3] x [0, 2] : (tensor<22x2x2x1xbf16>, tensor<2x1x1xbf16>) -> tensor<22x2x1xbf16>
    %58 = stablehlo.transpose %57, dims = [0, 2, 1] : (tensor<22x2x1xbf16>) -> tensor<22x1x2xbf16>
    return %33, %28, %34, %56, %48, %58, %35#0, %35#1, %35#2, %17, %12, %18 : tensor<32x32xf32>, tensor<32x32xf32>, tensor<600x32xf32>, tensor<2x1x1xbf16>, tensor<1x1xbf16>, tensor<22x1x2xbf16>, tensor<2x2x29x29xf32>, tensor<2x29x29xf32>, tensor<2x2x16x29xf32>, tensor<1x23x23xf16>, tensor<23x23xf16>, tensor<1x1x23xf16>
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
  func.func private @called_where_it_is_used(%arg0: tensor<2x2x29x29xf32>, %arg1: tensor<2x29x29xf32>, %arg2: tensor<2x2x16x29xf32>, %arg3: tensor<2x2xf32>) -> (tensor<2x2x29x29xf32>, tensor<2x29x29xf32>, tensor<2x2x16x29xf32>) {
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0:4 = stablehlo.optimization_barrier %arg0, %arg1, %arg2, %arg3 : tensor<2x2x29x29xf32>, tensor<2x29x29xf32>, tensor<2x2x16x29xf32>, tensor<2x2xf32>
    %1 = stablehlo.dot_general %0#2, %0#0, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2] : (tensor<2x2x16x29xf32>, tensor<2x2x29x29xf32>) -> tensor<2x2x16x29xf32>
    %2 = call @relu_1(%1) : (tensor<2x2x16x29xf32>) -> tensor<2x2x16x29xf32>
    %3 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x2x16x29xf32>
    %4 = stablehlo.compare GT, %1, %3, FLOAT : (tensor<2x2x16x29xf32>, tensor<2x2x16x29xf32>) -> tensor<2x2x16x29xi1>
    %5 = stablehlo.dot_general %2, %0#1, batching_dims = [0] x [0], contracting_dims = [3] x [1] : (tensor<2x2x16x29xf32>, tensor<2x29x29xf32>) -> tensor<2x2x16x29xf32>
    %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2x16x29xf32>
    %7 = stablehlo.multiply %6, %5 : tensor<2x2x16x29xf32>
    %8 = stablehlo.broadcast_in_dim %0#3, dims = [0, 1] : (tensor<2x2xf32>) -> tensor<2x2x16x29xf32>
    %9 = stablehlo.multiply %8, %7 : tensor<2x2x16x29xf32>
    %10 = stablehlo.dot_general %9, %2, batching_dims = [0] x [0], contracting_dims = [1, 2] x [1, 2] : (tensor<2x2x16x29xf32>, tensor<2x2x16x29xf32>) -> tensor<2x29x29xf32>
    %11 = stablehlo.transpose %10, dims = [0, 2, 1] : (tensor<2x29x29xf32>) -> tensor<2x29x29xf32>
    %12 = stablehlo.dot_general %9, %0#1, batching_dims = [0] x [0], contracting_dims = [3] x [2] : (tensor<2x2x16x29xf32>, tensor<2x29x29xf32>) -> tensor<2x2x16x29xf32>
    %13 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x2x16x29xf32>
    %14 = stablehlo.select %4, %12, %13 : tensor<2x2x16x29xi1>, tensor<2x2x16x29xf32>
    %15 = stablehlo.dot_general %14, %0#2, batching_dims = [0, 1] x [0, 1], contracting_dims = [2] x [2] : (tensor<2x2x16x29xf32>, tensor<2x2x16x29xf32>) -> tensor<2x2x29x29xf32>
    %16 = stablehlo.transpose %15, dims = [0, 1, 3, 2] : (tensor<2x2x29x29xf32>) -> tensor<2x2x29x29xf32>
    %17 = stablehlo.dot_general %14, %0#0, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3] : (tensor<2x2x16x29xf32>, tensor<2x2x29x29xf32>) -> tensor<2x2x16x29xf32>
    return %16, %11, %17 : tensor<2x2x29x29xf32>, tensor<2x29x29xf32>, tensor<2x2x16x29xf32>
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
