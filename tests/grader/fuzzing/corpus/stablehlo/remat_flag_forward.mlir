module @jit_forward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x7x9xf32>, %arg1: tensor<9x8xf32>, %arg2: tensor<8x9xf32>, %arg3: tensor<7x9xf32>, %arg4: tensor<9x8xf32>, %arg5: tensor<8x9xf32>, %arg6: tensor<7x9xf32>, %arg7: tensor<9x8xf32>, %arg8: tensor<7x9xf32>, %arg9: tensor<8xf32>, %arg10: tensor<8x8xf32>, %arg11: tensor<8x8xf32>, %arg12: tensor<8x8xf32>, %arg13: tensor<8x8xf32>, %arg14: tensor<2x5x8xf32>, %arg15: tensor<8xf16>, %arg16: tensor<8x8xf16>, %arg17: tensor<8x8xf16>, %arg18: tensor<8x8xf16>, %arg19: tensor<2x5x8xf16>) -> (tensor<2xf32> {jax.result_info = "result[0][0][0]"}, tensor<2x7x9xf32> {jax.result_info = "result[0][1][0]"}, tensor<f32> {jax.result_info = "result[1][0][0]"}, tensor<9x8xf32> {jax.result_info = "result[1][1][0]"}, tensor<8x9xf32> {jax.result_info = "result[1][1][1]"}, tensor<7x9xf32> {jax.result_info = "result[1][1][2]"}, tensor<f32> {jax.result_info = "result[1][2][0]"}, tensor<f32> {jax.result_info = "result[2][0][0]"}, tensor<9x8xf32> {jax.result_info = "result[2][1][0]"}, tensor<8x9xf32> {jax.result_info = "result[2][1][1]"}, tensor<7x9xf32> {jax.result_info = "result[2][1][2]"}, tensor<f32> {jax.result_info = "result[3][0][0]"}, tensor<9x8xf32> {jax.result_info = "result[3][1][0]"}, tensor<7x9xf32> {jax.result_info = "result[3][1][1]"}, tensor<2x5x8xf32> {jax.result_info = "result[4][0][0]"}, tensor<8xf32> {jax.result_info = "result[4][1][0]"}, tensor<8x8xf32> {jax.result_info = "result[4][1][1]"}, tensor<8x8xf32> {jax.result_info = "result[4][1][2]"}, tensor<8x8xf32> {jax.result_info = "result[4][1][3]"}, tensor<8x8xf32> {jax.result_info = "result[4][1][4]"}, tensor<2x5x8xf32> {jax.result_info = "result[4][1][5]"}, tensor<2x5x8xf16> {jax.result_info = "result[5][0][0]"}, tensor<8xf16> {jax.result_info = "result[5][1][0]"}, tensor<8x8xf16> {jax.result_info = "result[5][1][1]"}, tensor<8x8xf16> {jax.result_info = "result[5][1][2]"}, tensor<8x8xf16> {jax.result_info = "result[5][1][3]"}, tensor<2x5x8xf16> {jax.result_info = "result[5][1][4]"}) {
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_1 = stablehlo.constant dense<-2.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg3, %arg1, contracting_dims = [1] x [0] : (tensor<7x9xf32>, tensor<9x8xf32>) -> tensor<7x8xf32>
    %1 = stablehlo.sine %0 : tensor<7x8xf32>
    %2 = stablehlo.multiply %1, %1 : tensor<7x8xf32>
    %3 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<7x8xf32>
    %4 = stablehlo.multiply %3, %2 : tensor<7x8xf32>
    %5 = stablehlo.exponential %4 : tensor<7x8xf32>
    %6 = stablehlo.multiply %1, %5 : tensor<7x8xf32>
    %7 = stablehlo.dot_general %6, %arg2, contracting_dims = [1] x [0] : (tensor<7x8xf32>, tensor<8x9xf32>) -> tensor<7x9xf32>
    %8 = stablehlo.sine %7 : tensor<7x9xf32>
    %9 = stablehlo.multiply %8, %7 : tensor<7x9xf32>
    %10 = stablehlo.reduce(%9 init: %cst_0) applies stablehlo.add across dimensions = [0, 1] : (tensor<7x9xf32>, tensor<f32>) -> tensor<f32>
    %11 = stablehlo.broadcast_in_dim %arg9, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x5x8xf32>
    %13 = stablehlo.multiply %12, %arg14 : tensor<2x5x8xf32>
    %14 = stablehlo.dot_general %13, %arg10, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %15 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %16 = stablehlo.divide %14, %15 : tensor<2x5x8xf32>
    %17 = stablehlo.cosine %16 : tensor<2x5x8xf32>
    %18 = stablehlo.dot_general %17, %arg11, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %19 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %20 = stablehlo.divide %18, %19 : tensor<2x5x8xf32>
    %21 = stablehlo.cosine %20 : tensor<2x5x8xf32>
    %22 = stablehlo.dot_general %21, %arg12, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %23 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %24 = stablehlo.divide %22, %23 : tensor<2x5x8xf32>
    %25 = stablehlo.cosine %24 : tensor<2x5x8xf32>
    %26 = stablehlo.dot_general %25, %arg13, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %27 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %28 = stablehlo.divide %26, %27 : tensor<2x5x8xf32>
    %29 = stablehlo.cosine %28 : tensor<2x5x8xf32>
    %30 = stablehlo.broadcast_in_dim %arg9, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %31 = stablehlo.broadcast_in_dim %30, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x5x8xf32>
    %32 = stablehlo.multiply %31, %arg14 : tensor<2x5x8xf32>
    %33 = stablehlo.dot_general %32, %arg10, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %34 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %35 = stablehlo.divide %33, %34 : tensor<2x5x8xf32>
    %36 = stablehlo.sine %35 : tensor<2x5x8xf32>
    %37 = stablehlo.dot_general %36, %arg11, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %38 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %39 = stablehlo.divide %37, %38 : tensor<2x5x8xf32>
    %40 = stablehlo.sine %39 : tensor<2x5x8xf32>
    %41 = stablehlo.dot_general %40, %arg12, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %42 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %43 = stablehlo.divide %41, %42 : tensor<2x5x8xf32>
    %44 = stablehlo.sine %43 : tensor<2x5x8xf32>
    %45 = stablehlo.dot_general %44, %arg13, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %46 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %47 = stablehlo.divide %45, %46 : tensor<2x5x8xf32>
    %48 = stablehlo.sine %47 : tensor<2x5x8xf32>
    %49 = stablehlo.broadcast_in_dim %arg9, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %50 = stablehlo.broadcast_in_dim %49, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x5x8xf32>
    %51 = stablehlo.multiply %50, %arg14 : tensor<2x5x8xf32>
    %52 = stablehlo.dot_general %51, %arg10, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %53 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %54 = stablehlo.divide %52, %53 : tensor<2x5x8xf32>
    %55 = stablehlo.cosine %54 : tensor<2x5x8xf32>
    %56 = stablehlo.dot_general %55, %arg11, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %57 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %58 = stablehlo.divide %56, %57 : tensor<2x5x8xf32>
    %59 = stablehlo.cosine %58 : tensor<2x5x8xf32>
    %60 = stablehlo.dot_general %59, %arg12, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %61 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %62 = stablehlo.divide %60, %61 : tensor<2x5x8xf32>
    %63 = stablehlo.cosine %62 : tensor<2x5x8xf32>
    %64 = stablehlo.dot_general %63, %arg13, contracting_dims = [2] x [0] : (tensor<2x5x8xf32>, tensor<8x8xf32>) -> tensor<2x5x8xf32>
    %65 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x5x8xf32>
    %66 = stablehlo.divide %64, %65 : tensor<2x5x8xf32>
    %67 = stablehlo.cosine %66 : tensor<2x5x8xf32>
    %68 = stablehlo.add %29, %48 : tensor<2x5x8xf32>
    %69 = stablehlo.add %68, %67 : tensor<2x5x8xf32>
    %70 = stablehlo.dot_general %arg8, %arg7, contracting_dims = [1] x [0] : (tensor<7x9xf32>, tensor<9x8xf32>) -> tensor<7x8xf32>
    %71 = stablehlo.sine %70 : tensor<7x8xf32>
    %72 = stablehlo.multiply %71, %70 : tensor<7x8xf32>
    %73 = stablehlo.reduce(%72 init: %cst_0) applies stablehlo.add across dimensions = [0, 1] : (tensor<7x8xf32>, tensor<f32>) -> tensor<f32>
    %74 = stablehlo.dot_general %arg8, %arg7, contracting_dims = [1] x [0] : (tensor<7x9xf32>, tensor<9x8xf32>) -> tensor<7x8xf32>
    %75 = stablehlo.tanh %74 : tensor<7x8xf32>
    %76 = stablehlo.multiply %75, %75 : tensor<7x8xf32>
    %77 = stablehlo.reduce(%76 init: %cst_0) applies stablehlo.add across dimensions = [0, 1] : (tensor<7x8xf32>, tensor<f32>) -> tensor<f32>
    %78 = stablehlo.add %73, %77 : tensor<f32>
    %79 = stablehlo.exponential %arg0 : tensor<2x7x9xf32>
    %80 = stablehlo.reduce(%79 init: %cst_0) applies stablehlo.add across dimensions = [1, 2] : (tensor<2x7x9xf32>, tensor<f32>) -> tensor<2xf32>
    %81 = stablehlo.dot_general %arg6, %arg4, contracting_dims = [1] x [0] : (tensor<7x9xf32>, tensor<9x8xf32>) -> tensor<7x8xf32>
    %82 = stablehlo.sine %81 : tensor<7x8xf32>
    %83 = stablehlo.dot_general %82, %arg5, contracting_dims = [1] x [0] : (tensor<7x8xf32>, tensor<8x9xf32>) -> tensor<7x9xf32>
    %84 = stablehlo.sine %83 : tensor<7x9xf32>
    %85 = stablehlo.multiply %84, %83 : tensor<7x9xf32>
    %86 = stablehlo.reduce(%85 init: %cst_0) applies stablehlo.add across dimensions = [0, 1] : (tensor<7x9xf32>, tensor<f32>) -> tensor<f32>
    %87 = call @"<lambda>"(%arg15, %arg16, %arg17, %arg18, %arg19) : (tensor<8xf16>, tensor<8x8xf16>, tensor<8x8xf16>, tensor<8x8xf16>, tensor<2x5x8xf16>) -> tensor<2x5x8xf16>
    %88 = stablehlo.dot_general %arg3, %arg1, contracting_dims = [1] x [0] : (tensor<7x9xf32>, tensor<9x8xf32>) -> tensor<7x8xf32>
    %89 = stablehlo.sine %88 : tensor<7x8xf32>
    %90 = stablehlo.multiply %89, %89 : tensor<7x8xf32>
    %91 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<7x8xf32>
    %92 = stablehlo.multiply %91, %90 : tensor<7x8xf32>
    %93 = stablehlo.exponential %92 : tensor<7x8xf32>
    %94 = stablehlo.multiply %89, %93 : tensor<7x8xf32>
    %95 = stablehlo.dot_general %94, %arg2, contracting_dims = [1] x [0] : (tensor<7x8xf32>, tensor<8x9xf32>) -> tensor<7x9xf32>
    %96 = stablehlo.sine %95 : tensor<7x9xf32>
    %97 = stablehlo.multiply %96, %95 : tensor<7x9xf32>
    %98 = stablehlo.reduce(%97 init: %cst_0) applies stablehlo.add across dimensions = [0, 1] : (tensor<7x9xf32>, tensor<f32>) -> tensor<f32>
    return %80, %arg0, %10, %arg1, %arg2, %arg3, %98, %86, %arg4, %arg5, %arg6, %78, %arg7, %arg8, %69, %arg9, %arg10, %arg11, %arg12, %arg13, %arg14, %87, %arg15, %arg16, %arg17, %arg18, %arg19 : tensor<2xf32>, tensor<2x7x9xf32>, tensor<f32>, tensor<9x8xf32>, tensor<8x9xf32>, tensor<7x9xf32>, tensor<f32>, tensor<f32>, tensor<9x8xf32>, tensor<8x9xf32>, tensor<7x9xf32>, tensor<f32>, tensor<9x8xf32>, tensor<7x9xf32>, tensor<2x5x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<2x5x8xf32>, tensor<2x5x8xf16>, tensor<8xf16>, tensor<8x8xf16>, tensor<8x8xf16>, tensor<8x8xf16>, tensor<2x5x8xf16>
  }
  func.func private @"<lambda>"(%arg0: tensor<8xf16>, %arg1: tensor<8x8xf16>, %arg2: tensor<8x8xf16>, %arg3: tensor<8x8xf16>, %arg4: tensor<2x5x8xf16>) -> tensor<2x5x8xf16> {
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f16>
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [2] : (tensor<8xf16>) -> tensor<1x1x8xf16>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : (tensor<1x1x8xf16>) -> tensor<2x5x8xf16>
    %2 = stablehlo.multiply %1, %arg4 : tensor<2x5x8xf16>
    %3 = stablehlo.dot_general %2, %arg1, contracting_dims = [2] x [0] : (tensor<2x5x8xf16>, tensor<8x8xf16>) -> tensor<2x5x8xf16>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<2x5x8xf16>
    %5 = stablehlo.divide %3, %4 : tensor<2x5x8xf16>
    %6 = stablehlo.sine %5 : tensor<2x5x8xf16>
    %7 = stablehlo.dot_general %6, %arg2, contracting_dims = [2] x [0] : (tensor<2x5x8xf16>, tensor<8x8xf16>) -> tensor<2x5x8xf16>
    %8 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<2x5x8xf16>
    %9 = stablehlo.divide %7, %8 : tensor<2x5x8xf16>
    %10 = stablehlo.sine %9 : tensor<2x5x8xf16>
    %11 = stablehlo.broadcast_in_dim %arg0, dims = [2] : (tensor<8xf16>) -> tensor<1x1x8xf16>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2] : (tensor<1x1x8xf16>) -> tensor<2x5x8xf16>
    %13 = stablehlo.multiply %12, %arg4 : tensor<2x5x8xf16>
    %14 = stablehlo.dot_general %13, %arg1, contracting_dims = [2] x [0] : (tensor<2x5x8xf16>, tensor<8x8xf16>) -> tensor<2x5x8xf16>
    %15 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<2x5x8xf16>
    %16 = stablehlo.divide %14, %15 : tensor<2x5x8xf16>
    %17 = stablehlo.sine %16 : tensor<2x5x8xf16>
    %18 = stablehlo.dot_general %17, %arg2, contracting_dims = [2] x [0] : (tensor<2x5x8xf16>, tensor<8x8xf16>) -> tensor<2x5x8xf16>
    %19 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<2x5x8xf16>
    %20 = stablehlo.divide %18, %19 : tensor<2x5x8xf16>
    %21 = stablehlo.sine %20 : tensor<2x5x8xf16>
    %22 = stablehlo.dot_general %21, %arg3, contracting_dims = [2] x [0] : (tensor<2x5x8xf16>, tensor<8x8xf16>) -> tensor<2x5x8xf16>
    %23 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<2x5x8xf16>
    %24 = stablehlo.divide %22, %23 : tensor<2x5x8xf16>
    %25 = stablehlo.sine %24 : tensor<2x5x8xf16>
    %26 = stablehlo.add %10, %25 : tensor<2x5x8xf16>
    return %26 : tensor<2x5x8xf16>
  }
}
