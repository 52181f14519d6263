module @jit_forward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<9x8xf32>, %arg1: tensor<8x5xf32>, %arg2: tensor<7x9xf32>, %arg3: tensor<6x7xf32>, %arg4: tensor<7x5xf32>, %arg5: tensor<9x6xf32>, %arg6: tensor<7x8xf32>, %arg7: tensor<8x9xf32>, %arg8: tensor<5x7xf32>, %arg9: tensor<7x5xf32>, %arg10: tensor<5x6xf32>, %arg11: tensor<8x7xf32>, %arg12: tensor<7x6xf32>, %arg13: tensor<6x8xf32>, %arg14: tensor<9x7xf32>, %arg15: tensor<5x8xf32>, %arg16: tensor<8x7xf32>, %arg17: tensor<9x5xf32>) -> (tensor<f32> {jax.result_info = "result[0][0][0]", mhlo.memory_kind = "device"}, tensor<9x8xf32> {jax.result_info = "result[0][1][0]", mhlo.memory_kind = "device"}, tensor<8x5xf32> {jax.result_info = "result[0][1][1]", mhlo.memory_kind = "device"}, tensor<7x9xf32> {jax.result_info = "result[0][1][2]", mhlo.memory_kind = "device"}, tensor<7x8xf32> {jax.result_info = "result[0][1][3]", mhlo.memory_kind = "device"}, tensor<7x5xf32> {jax.result_info = "result[0][1][4]", mhlo.memory_kind = "device"}, tensor<7x5xf32> {jax.result_info = "result[0][1][5]", mhlo.memory_kind = "device"}, tensor<f32> {jax.result_info = "result[1][0][0]", mhlo.memory_kind = "device"}, tensor<6x7xf32> {jax.result_info = "result[1][1][0]", mhlo.memory_kind = "device"}, tensor<7x5xf32> {jax.result_info = "result[1][1][1]", mhlo.memory_kind = "device"}, tensor<9x6xf32> {jax.result_info = "result[1][1][2]", mhlo.memory_kind = "device"}, tensor<9x7xf32> {jax.result_info = "result[1][1][3]", mhlo.memory_kind = "device"}, tensor<9x5xf32> {jax.result_info = "result[1][1][4]", mhlo.memory_kind = "device"}, tensor<9x5xf32> {jax.result_info = "result[1][1][5]", mhlo.memory_kind = "device"}, tensor<f32> {jax.result_info = "result[2][0][0]", mhlo.memory_kind = "device"}, tensor<7x8xf32> {jax.result_info = "result[2][1][0]", mhlo.memory_kind = "device"}, tensor<8x9xf32> {jax.result_info = "result[2][1][1]", mhlo.memory_kind = "device"}, tensor<5x7xf32> {jax.result_info = "result[2][1][2]", mhlo.memory_kind = "device"}, tensor<5x8xf32> {jax.result_info = "result[2][1][3]", mhlo.memory_kind = "pinned_host"}, tensor<5x9xf32> {jax.result_info = "result[2][1][4]", mhlo.memory_kind = "pinned_host"}, tensor<5x9xf32> {jax.result_info = "result[2][1][5]", mhlo.memory_kind = "device"}, tensor<f32> {jax.result_info = "result[2][2][0]", mhlo.memory_kind = "device"}, tensor<f32> {jax.result_info = "result[3][0][0]", mhlo.memory_kind = "device"}, tensor<7x5xf32> {jax.result_info = "result[3][1][0]", mhlo.memory_kind = "device"}, tensor<5x6xf32> {jax.result_info = "result[3][1][1]", mhlo.memory_kind = "device"}, tensor<8x7xf32> {jax.result_info = "result[3][1][2]", mhlo.memory_kind = "device"}, tensor<8x5xf32> {jax.result_info = "result[3][1][3]", mhlo.memory_kind = "pinned_host"}, tensor<8x6xf32> {jax.result_info = "result[3][1][4]", mhlo.memory_kind = "device"}, tensor<8x6xf32> {jax.result_info = "result[3][1][5]", mhlo.memory_kind = "device"}, tensor<f32> {jax.result_info = "result[4][0][0]", mhlo.memory_kind = "device"}, tensor<7x6xf32> {jax.result_info = "result[4][1][0]", mhlo.memory_kind = "device"}, tensor<6x8xf32> {jax.result_info = "result[4][1][1]", mhlo.memory_kind = "device"}, tensor<9x7xf32> {jax.result_info = "result[4][1][2]", mhlo.memory_kind = "device"}, tensor<9x6xf32> {jax.result_info = "result[4][1][3]", mhlo.memory_kind = "device"}, tensor<9x8xf32> {jax.result_info = "result[4][1][4]", mhlo.memory_kind = "pinned_host"}, tensor<f32> {jax.result_info = "result[5][0][0]", mhlo.memory_kind = "device"}, tensor<5x8xf32> {jax.result_info = "result[5][1][0]", mhlo.memory_kind = "device"}, tensor<8x7xf32> {jax.result_info = "result[5][1][1]", mhlo.memory_kind = "device"}, tensor<9x5xf32> {jax.result_info = "result[5][1][2]", mhlo.memory_kind = "device"}, tensor<9x8xf32> {jax.result_info = "result[5][1][3]", mhlo.memory_kind = "device"}, tensor<9x7xf32> {jax.result_info = "result[5][1][4]", mhlo.memory_kind = "device"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %cst_1 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg8, %arg6, contracting_dims = [1] x [0] : (tensor<5x7xf32>, tensor<7x8xf32>) -> tensor<5x8xf32>
    %1 = stablehlo.tanh %0 : tensor<5x8xf32>
    %2 = stablehlo.dot_general %1, %arg7, contracting_dims = [1] x [0] : (tensor<5x8xf32>, tensor<8x9xf32>) -> tensor<5x9xf32>
    %3 = stablehlo.multiply %2, %2 : tensor<5x9xf32>
    %4 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<5x9xf32>
    %5 = stablehlo.divide %3, %4 : tensor<5x9xf32>
    %6 = stablehlo.sine %2 : tensor<5x9xf32>
    %7 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<5x9xf32>
    %8 = stablehlo.divide %6, %7 : tensor<5x9xf32>
    %9 = stablehlo.reduce_precision %8, format = e8m23 : tensor<5x9xf32>
    %10 = stablehlo.sine %5 : tensor<5x9xf32>
    %11 = stablehlo.sine %9 : tensor<5x9xf32>
    %12 = stablehlo.multiply %10, %11 : tensor<5x9xf32>
    %13 = stablehlo.reduce(%12 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<5x9xf32>, tensor<f32>) -> tensor<f32>
    %14 = stablehlo.dot_general %arg14, %arg12, contracting_dims = [1] x [0] : (tensor<9x7xf32>, tensor<7x6xf32>) -> tensor<9x6xf32>
    %15 = stablehlo.reduce_precision %14, format = e8m23 : tensor<9x6xf32>
    %16 = stablehlo.tanh %15 : tensor<9x6xf32>
    %17 = stablehlo.dot_general %16, %arg13, contracting_dims = [1] x [0] : (tensor<9x6xf32>, tensor<6x8xf32>) -> tensor<9x8xf32>
    %18 = stablehlo.multiply %17, %17 : tensor<9x8xf32>
    %19 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<9x8xf32>
    %20 = stablehlo.divide %18, %19 : tensor<9x8xf32>
    %21 = stablehlo.sine %17 : tensor<9x8xf32>
    %22 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<9x8xf32>
    %23 = stablehlo.divide %21, %22 : tensor<9x8xf32>
    %24 = stablehlo.sine %20 : tensor<9x8xf32>
    %25 = stablehlo.sine %23 : tensor<9x8xf32>
    %26 = stablehlo.multiply %24, %25 : tensor<9x8xf32>
    %27 = stablehlo.reduce(%26 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<9x8xf32>, tensor<f32>) -> tensor<f32>
    %28 = stablehlo.dot_general %arg2, %arg0, contracting_dims = [1] x [0] : (tensor<7x9xf32>, tensor<9x8xf32>) -> tensor<7x8xf32>
    %29 = stablehlo.reduce_precision %28, format = e8m23 : tensor<7x8xf32>
    %30 = stablehlo.tanh %29 : tensor<7x8xf32>
    %31 = stablehlo.dot_general %30, %arg1, contracting_dims = [1] x [0] : (tensor<7x8xf32>, tensor<8x5xf32>) -> tensor<7x5xf32>
    %32 = stablehlo.reduce_precision %31, format = e8m23 : tensor<7x5xf32>
    %33 = stablehlo.multiply %32, %32 : tensor<7x5xf32>
    %34 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<7x5xf32>
    %35 = stablehlo.divide %33, %34 : tensor<7x5xf32>
    %36 = stablehlo.reduce_precision %35, format = e8m23 : tensor<7x5xf32>
    %37 = stablehlo.sine %32 : tensor<7x5xf32>
    %38 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<7x5xf32>
    %39 = stablehlo.divide %37, %38 : tensor<7x5xf32>
    %40 = stablehlo.sine %36 : tensor<7x5xf32>
    %41 = stablehlo.sine %39 : tensor<7x5xf32>
    %42 = stablehlo.multiply %40, %41 : tensor<7x5xf32>
    %43 = stablehlo.reduce(%42 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<7x5xf32>, tensor<f32>) -> tensor<f32>
    %44 = stablehlo.dot_general %arg5, %arg3, contracting_dims = [1] x [0] : (tensor<9x6xf32>, tensor<6x7xf32>) -> tensor<9x7xf32>
    %45 = stablehlo.reduce_precision %44, format = e8m23 : tensor<9x7xf32>
    %46 = stablehlo.tanh %45 : tensor<9x7xf32>
    %47 = stablehlo.dot_general %46, %arg4, contracting_dims = [1] x [0] : (tensor<9x7xf32>, tensor<7x5xf32>) -> tensor<9x5xf32>
    %48 = stablehlo.reduce_precision %47, format = e8m23 : tensor<9x5xf32>
    %49 = stablehlo.multiply %48, %48 : tensor<9x5xf32>
    %50 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<9x5xf32>
    %51 = stablehlo.divide %49, %50 : tensor<9x5xf32>
    %52 = stablehlo.sine %48 : tensor<9x5xf32>
    %53 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<9x5xf32>
    %54 = stablehlo.divide %52, %53 : tensor<9x5xf32>
    %55 = stablehlo.reduce_precision %54, format = e8m23 : tensor<9x5xf32>
    %56 = stablehlo.sine %51 : tensor<9x5xf32>
    %57 = stablehlo.sine %55 : tensor<9x5xf32>
    %58 = stablehlo.multiply %56, %57 : tensor<9x5xf32>
    %59 = stablehlo.reduce(%58 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<9x5xf32>, tensor<f32>) -> tensor<f32>
    %60 = stablehlo.dot_general %arg11, %arg9, contracting_dims = [1] x [0] : (tensor<8x7xf32>, tensor<7x5xf32>) -> tensor<8x5xf32>
    %61 = stablehlo.tanh %60 : tensor<8x5xf32>
    %62 = stablehlo.dot_general %61, %arg10, contracting_dims = [1] x [0] : (tensor<8x5xf32>, tensor<5x6xf32>) -> tensor<8x6xf32>
    %63 = stablehlo.reduce_precision %62, format = e8m23 : tensor<8x6xf32>
    %64 = stablehlo.multiply %63, %63 : tensor<8x6xf32>
    %65 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<8x6xf32>
    %66 = stablehlo.divide %64, %65 : tensor<8x6xf32>
    %67 = stablehlo.reduce_precision %66, format = e8m23 : tensor<8x6xf32>
    %68 = stablehlo.sine %63 : tensor<8x6xf32>
    %69 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8x6xf32>
    %70 = stablehlo.divide %68, %69 : tensor<8x6xf32>
    %71 = stablehlo.sine %67 : tensor<8x6xf32>
    %72 = stablehlo.sine %70 : tensor<8x6xf32>
    %73 = stablehlo.multiply %71, %72 : tensor<8x6xf32>
    %74 = stablehlo.reduce(%73 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x6xf32>, tensor<f32>) -> tensor<f32>
    %75 = stablehlo.dot_general %arg17, %arg15, contracting_dims = [1] x [0] : (tensor<9x5xf32>, tensor<5x8xf32>) -> tensor<9x8xf32>
    %76 = stablehlo.tanh %75 : tensor<9x8xf32>
    %77 = stablehlo.dot_general %76, %arg16, contracting_dims = [1] x [0] : (tensor<9x8xf32>, tensor<8x7xf32>) -> tensor<9x7xf32>
    %78 = stablehlo.multiply %77, %77 : tensor<9x7xf32>
    %79 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<9x7xf32>
    %80 = stablehlo.divide %78, %79 : tensor<9x7xf32>
    %81 = stablehlo.sine %77 : tensor<9x7xf32>
    %82 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<9x7xf32>
    %83 = stablehlo.divide %81, %82 : tensor<9x7xf32>
    %84 = stablehlo.sine %80 : tensor<9x7xf32>
    %85 = stablehlo.sine %83 : tensor<9x7xf32>
    %86 = stablehlo.multiply %84, %85 : tensor<9x7xf32>
    %87 = stablehlo.reduce(%86 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<9x7xf32>, tensor<f32>) -> tensor<f32>
    %88 = stablehlo.dot_general %arg8, %arg6, contracting_dims = [1] x [0] : (tensor<5x7xf32>, tensor<7x8xf32>) -> tensor<5x8xf32>
    %89 = stablehlo.tanh %88 : tensor<5x8xf32>
    %90 = stablehlo.dot_general %89, %arg7, contracting_dims = [1] x [0] : (tensor<5x8xf32>, tensor<8x9xf32>) -> tensor<5x9xf32>
    %91 = stablehlo.multiply %90, %90 : tensor<5x9xf32>
    %92 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<5x9xf32>
    %93 = stablehlo.divide %91, %92 : tensor<5x9xf32>
    %94 = stablehlo.sine %90 : tensor<5x9xf32>
    %95 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<5x9xf32>
    %96 = stablehlo.divide %94, %95 : tensor<5x9xf32>
    %97 = stablehlo.sine %93 : tensor<5x9xf32>
    %98 = stablehlo.sine %96 : tensor<5x9xf32>
    %99 = stablehlo.multiply %97, %98 : tensor<5x9xf32>
    %100 = stablehlo.reduce(%99 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<5x9xf32>, tensor<f32>) -> tensor<f32>
    return %43, %arg0, %arg1, %arg2, %29, %32, %36, %59, %arg3, %arg4, %arg5, %45, %48, %55, %13, %arg6, %arg7, %arg8, %0, %2, %9, %100, %74, %arg9, %arg10, %arg11, %60, %63, %67, %27, %arg12, %arg13, %arg14, %15, %17, %87, %arg15, %arg16, %arg17, %75, %77 : tensor<f32>, tensor<9x8xf32>, tensor<8x5xf32>, tensor<7x9xf32>, tensor<7x8xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<f32>, tensor<6x7xf32>, tensor<7x5xf32>, tensor<9x6xf32>, tensor<9x7xf32>, tensor<9x5xf32>, tensor<9x5xf32>, tensor<f32>, tensor<7x8xf32>, tensor<8x9xf32>, tensor<5x7xf32>, tensor<5x8xf32>, tensor<5x9xf32>, tensor<5x9xf32>, tensor<f32>, tensor<f32>, tensor<7x5xf32>, tensor<5x6xf32>, tensor<8x7xf32>, tensor<8x5xf32>, tensor<8x6xf32>, tensor<8x6xf32>, tensor<f32>, tensor<7x6xf32>, tensor<6x8xf32>, tensor<9x7xf32>, tensor<9x6xf32>, tensor<9x8xf32>, tensor<f32>, tensor<5x8xf32>, tensor<8x7xf32>, tensor<9x5xf32>, tensor<9x8xf32>, tensor<9x7xf32>
  }
}
