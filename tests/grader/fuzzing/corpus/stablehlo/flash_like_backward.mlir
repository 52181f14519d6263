module @jit_backward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<24x7xf32>, %arg1: tensor<12x7xf32>, %arg2: tensor<12x2xf32>, %arg3: tensor<2x7xf32>, %arg4: tensor<24x2xf32>, %arg5: tensor<24xf32>, %arg6: tensor<10x2xf32>, %arg7: tensor<24x2xf32>, %arg8: tensor<24x9xf32>, %arg9: tensor<9x6xf32>, %arg10: tensor<10x9xf32>, %arg11: tensor<10xf32>, %arg12: tensor<1x12xf32>, %arg13: tensor<20x12xf32>, %arg14: tensor<20x9xf32>, %arg15: tensor<9x5xf32>, %arg16: tensor<1x9xf32>, %arg17: tensor<1xf32>, %arg18: tensor<2x11x7xf32>, %arg19: tensor<2x4x7xf32>, %arg20: tensor<2x4x12xf32>, %arg21: tensor<2x12x6xf32>, %arg22: tensor<2x11x12xf32>, %arg23: tensor<2x11xf32>, %arg24: tensor<24x7xf32>, %arg25: tensor<10x6xf32>, %arg26: tensor<1x5xf32>, %arg27: tensor<2x11x6xf32>) -> (tensor<24x7xf32> {jax.result_info = "result[0][0]"}, tensor<12x7xf32> {jax.result_info = "result[0][1]"}, tensor<12x2xf32> {jax.result_info = "result[0][2]"}, tensor<2x7xf32> {jax.result_info = "result[0][3]"}, tensor<10x2xf32> {jax.result_info = "result[1][0]"}, tensor<24x2xf32> {jax.result_info = "result[1][1]"}, tensor<24x9xf32> {jax.result_info = "result[1][2]"}, tensor<9x6xf32> {jax.result_info = "result[1][3]"}, tensor<1x12xf32> {jax.result_info = "result[2][0]"}, tensor<20x12xf32> {jax.result_info = "result[2][1]"}, tensor<20x9xf32> {jax.result_info = "result[2][2]"}, tensor<9x5xf32> {jax.result_info = "result[2][3]"}, tensor<2x11x7xf32> {jax.result_info = "result[3][0]"}, tensor<2x4x7xf32> {jax.result_info = "result[3][1]"}, tensor<2x4x12xf32> {jax.result_info = "result[3][2]"}, tensor<2x12x6xf32> {jax.result_info = "result[3][3]"}) {
    %cst = stablehlo.constant dense<0.707106769> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.377964467> : tensor<f32>
    %0:7 = stablehlo.optimization_barrier %arg22, %arg23, %arg18, %arg19, %arg20, %arg21, %arg27 : tensor<2x11x12xf32>, tensor<2x11xf32>, tensor<2x11x7xf32>, tensor<2x4x7xf32>, tensor<2x4x12xf32>, tensor<2x12x6xf32>, tensor<2x11x6xf32>
    %1 = stablehlo.dot_general %0#6, %0#0, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x11x6xf32>, tensor<2x11x12xf32>) -> tensor<2x6x12xf32>
    %2 = stablehlo.transpose %1, dims = [0, 2, 1] : (tensor<2x6x12xf32>) -> tensor<2x12x6xf32>
    %3 = stablehlo.dot_general %0#6, %0#5, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x11x6xf32>, tensor<2x12x6xf32>) -> tensor<2x11x12xf32>
    %4 = stablehlo.dot_general %3, %0#0, batching_dims = [0, 1] x [0, 1], contracting_dims = [2] x [2] : (tensor<2x11x12xf32>, tensor<2x11x12xf32>) -> tensor<2x11xf32>
    %5 = stablehlo.transpose %0#3, dims = [0, 2, 1] : (tensor<2x4x7xf32>) -> tensor<2x7x4xf32>
    %6 = stablehlo.dot_general %0#2, %5, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x11x7xf32>, tensor<2x7x4xf32>) -> tensor<2x11x4xf32>
    %7 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x11x4xf32>
    %8 = stablehlo.multiply %6, %7 : tensor<2x11x4xf32>
    %9 = stablehlo.broadcast_in_dim %0#1, dims = [0, 1] : (tensor<2x11xf32>) -> tensor<2x11x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<2x11x1xf32>) -> tensor<2x11x4xf32>
    %11 = stablehlo.subtract %8, %10 : tensor<2x11x4xf32>
    %12 = stablehlo.exponential %11 : tensor<2x11x4xf32>
    %13 = stablehlo.transpose %0#4, dims = [0, 2, 1] : (tensor<2x4x12xf32>) -> tensor<2x12x4xf32>
    %14 = stablehlo.dot_general %3, %13, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x11x12xf32>, tensor<2x12x4xf32>) -> tensor<2x11x4xf32>
    %15 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x11xf32>) -> tensor<2x11x1xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2] : (tensor<2x11x1xf32>) -> tensor<2x11x4xf32>
    %17 = stablehlo.subtract %14, %16 : tensor<2x11x4xf32>
    %18 = stablehlo.multiply %12, %17 : tensor<2x11x4xf32>
    %19 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x11x4xf32>
    %20 = stablehlo.multiply %19, %18 : tensor<2x11x4xf32>
    %21 = stablehlo.dot_general %20, %0#3, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x11x4xf32>, tensor<2x4x7xf32>) -> tensor<2x11x7xf32>
    %22 = stablehlo.transpose %18, dims = [0, 2, 1] : (tensor<2x11x4xf32>) -> tensor<2x4x11xf32>
    %23 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4x11xf32>
    %24 = stablehlo.multiply %23, %22 : tensor<2x4x11xf32>
    %25 = stablehlo.dot_general %24, %0#2, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x4x11xf32>, tensor<2x11x7xf32>) -> tensor<2x4x7xf32>
    %26 = stablehlo.transpose %12, dims = [0, 2, 1] : (tensor<2x11x4xf32>) -> tensor<2x4x11xf32>
    %27 = stablehlo.dot_general %26, %3, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x4x11xf32>, tensor<2x11x12xf32>) -> tensor<2x4x12xf32>
    %28 = stablehlo.dot_general %arg24, %arg4, contracting_dims = [0] x [0] : (tensor<24x7xf32>, tensor<24x2xf32>) -> tensor<7x2xf32>
    %29 = stablehlo.transpose %28, dims = [1, 0] : (tensor<7x2xf32>) -> tensor<2x7xf32>
    %30 = stablehlo.dot_general %arg24, %arg3, contracting_dims = [1] x [1] : (tensor<24x7xf32>, tensor<2x7xf32>) -> tensor<24x2xf32>
    %31 = stablehlo.dot_general %30, %arg4, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<24x2xf32>, tensor<24x2xf32>) -> tensor<24xf32>
    %32 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<12x7xf32>) -> tensor<7x12xf32>
    %33 = stablehlo.dot_general %arg0, %32, contracting_dims = [1] x [0] : (tensor<24x7xf32>, tensor<7x12xf32>) -> tensor<24x12xf32>
    %34 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<24x12xf32>
    %35 = stablehlo.multiply %33, %34 : tensor<24x12xf32>
    %36 = stablehlo.broadcast_in_dim %arg5, dims = [0] : (tensor<24xf32>) -> tensor<24x1xf32>
    %37 = stablehlo.broadcast_in_dim %36, dims = [0, 1] : (tensor<24x1xf32>) -> tensor<24x12xf32>
    %38 = stablehlo.subtract %35, %37 : tensor<24x12xf32>
    %39 = stablehlo.exponential %38 : tensor<24x12xf32>
    %40 = stablehlo.transpose %arg2, dims = [1, 0] : (tensor<12x2xf32>) -> tensor<2x12xf32>
    %41 = stablehlo.dot_general %30, %40, contracting_dims = [1] x [0] : (tensor<24x2xf32>, tensor<2x12xf32>) -> tensor<24x12xf32>
    %42 = stablehlo.broadcast_in_dim %31, dims = [0] : (tensor<24xf32>) -> tensor<24x1xf32>
    %43 = stablehlo.broadcast_in_dim %42, dims = [0, 1] : (tensor<24x1xf32>) -> tensor<24x12xf32>
    %44 = stablehlo.subtract %41, %43 : tensor<24x12xf32>
    %45 = stablehlo.multiply %39, %44 : tensor<24x12xf32>
    %46 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<24x12xf32>
    %47 = stablehlo.multiply %46, %45 : tensor<24x12xf32>
    %48 = stablehlo.dot_general %47, %arg1, contracting_dims = [1] x [0] : (tensor<24x12xf32>, tensor<12x7xf32>) -> tensor<24x7xf32>
    %49 = stablehlo.transpose %45, dims = [1, 0] : (tensor<24x12xf32>) -> tensor<12x24xf32>
    %50 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<12x24xf32>
    %51 = stablehlo.multiply %50, %49 : tensor<12x24xf32>
    %52 = stablehlo.dot_general %51, %arg0, contracting_dims = [1] x [0] : (tensor<12x24xf32>, tensor<24x7xf32>) -> tensor<12x7xf32>
    %53 = stablehlo.transpose %39, dims = [1, 0] : (tensor<24x12xf32>) -> tensor<12x24xf32>
    %54 = stablehlo.dot_general %53, %30, contracting_dims = [1] x [0] : (tensor<12x24xf32>, tensor<24x2xf32>) -> tensor<12x2xf32>
    %55:4 = call @layer(%arg12, %arg13, %arg14, %arg16, %arg17, %arg15, %arg26) : (tensor<1x12xf32>, tensor<20x12xf32>, tensor<20x9xf32>, tensor<1x9xf32>, tensor<1xf32>, tensor<9x5xf32>, tensor<1x5xf32>) -> (tensor<1x12xf32>, tensor<20x12xf32>, tensor<20x9xf32>, tensor<9x5xf32>)
    %56:7 = stablehlo.optimization_barrier %arg10, %arg11, %arg6, %arg7, %arg8, %arg9, %arg25 : tensor<10x9xf32>, tensor<10xf32>, tensor<10x2xf32>, tensor<24x2xf32>, tensor<24x9xf32>, tensor<9x6xf32>, tensor<10x6xf32>
    %57 = stablehlo.dot_general %56#6, %56#0, contracting_dims = [0] x [0] : (tensor<10x6xf32>, tensor<10x9xf32>) -> tensor<6x9xf32>
    %58 = stablehlo.transpose %57, dims = [1, 0] : (tensor<6x9xf32>) -> tensor<9x6xf32>
    %59 = stablehlo.dot_general %56#6, %56#5, contracting_dims = [1] x [1] : (tensor<10x6xf32>, tensor<9x6xf32>) -> tensor<10x9xf32>
    %60 = stablehlo.dot_general %59, %56#0, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<10x9xf32>, tensor<10x9xf32>) -> tensor<10xf32>
    %61 = stablehlo.transpose %56#3, dims = [1, 0] : (tensor<24x2xf32>) -> tensor<2x24xf32>
    %62 = stablehlo.dot_general %56#2, %61, contracting_dims = [1] x [0] : (tensor<10x2xf32>, tensor<2x24xf32>) -> tensor<10x24xf32>
    %63 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<10x24xf32>
    %64 = stablehlo.multiply %62, %63 : tensor<10x24xf32>
    %65 = stablehlo.broadcast_in_dim %56#1, dims = [0] : (tensor<10xf32>) -> tensor<10x1xf32>
    %66 = stablehlo.broadcast_in_dim %65, dims = [0, 1] : (tensor<10x1xf32>) -> tensor<10x24xf32>
    %67 = stablehlo.subtract %64, %66 : tensor<10x24xf32>
    %68 = stablehlo.exponential %67 : tensor<10x24xf32>
    %69 = stablehlo.transpose %56#4, dims = [1, 0] : (tensor<24x9xf32>) -> tensor<9x24xf32>
    %70 = stablehlo.dot_general %59, %69, contracting_dims = [1] x [0] : (tensor<10x9xf32>, tensor<9x24xf32>) -> tensor<10x24xf32>
    %71 = stablehlo.broadcast_in_dim %60, dims = [0] : (tensor<10xf32>) -> tensor<10x1xf32>
    %72 = stablehlo.broadcast_in_dim %71, dims = [0, 1] : (tensor<10x1xf32>) -> tensor<10x24xf32>
    %73 = stablehlo.subtract %70, %72 : tensor<10x24xf32>
    %74 = stablehlo.multiply %68, %73 : tensor<10x24xf32>
    %75 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<10x24xf32>
    %76 = stablehlo.multiply %75, %74 : tensor<10x24xf32>
    %77 = stablehlo.dot_general %76, %56#3, contracting_dims = [1] x [0] : (tensor<10x24xf32>, tensor<24x2xf32>) -> tensor<10x2xf32>
    %78 = stablehlo.transpose %74, dims = [1, 0] : (tensor<10x24xf32>) -> tensor<24x10xf32>
    %79 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<24x10xf32>
    %80 = stablehlo.multiply %79, %78 : tensor<24x10xf32>
    %81 = stablehlo.dot_general %80, %56#2, contracting_dims = [1] x [0] : (tensor<24x10xf32>, tensor<10x2xf32>) -> tensor<24x2xf32>
    %82 = stablehlo.transpose %68, dims = [1, 0] : (tensor<10x24xf32>) -> tensor<24x10xf32>
    %83 = stablehlo.dot_general %82, %59, contracting_dims = [1] x [0] : (tensor<24x10xf32>, tensor<10x9xf32>) -> tensor<24x9xf32>
    return %48, %52, %54, %29, %77, %81, %83, %58, %55#0, %55#1, %55#2, %55#3, %21, %25, %27, %2 : tensor<24x7xf32>, tensor<12x7xf32>, tensor<12x2xf32>, tensor<2x7xf32>, tensor<10x2xf32>, tensor<24x2xf32>, tensor<24x9xf32>, tensor<9x6xf32>, tensor<1x12xf32>, tensor<20x12xf32>, tensor<20x9xf32>, tensor<9x5xf32>, tensor<2x11x7xf32>, tensor<2x4x7xf32>, tensor<2x4x12xf32>, tensor<2x12x6xf32>
  }
  func.func private @layer(%arg0: tensor<1x12xf32>, %arg1: tensor<20x12xf32>, %arg2: tensor<20x9xf32>, %arg3: tensor<1x9xf32>, %arg4: tensor<1xf32>, %arg5: tensor<9x5xf32>, %arg6: tensor<1x5xf32>) -> (tensor<1x12xf32>, tensor<20x12xf32>, tensor<20x9xf32>, tensor<9x5xf32>) {
    %cst = stablehlo.constant dense<0.288675129> : tensor<f32>
    %0 = stablehlo.dot_general %arg6, %arg3, contracting_dims = [0] x [0] : (tensor<1x5xf32>, tensor<1x9xf32>) -> tensor<5x9xf32>
    %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<5x9xf32>) -> tensor<9x5xf32>
    %2 = stablehlo.dot_general %arg6, %arg5, contracting_dims = [1] x [1] : (tensor<1x5xf32>, tensor<9x5xf32>) -> tensor<1x9xf32>
    %3 = stablehlo.dot_general %2, %arg3, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<1x9xf32>, tensor<1x9xf32>) -> tensor<1xf32>
    %4 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<20x12xf32>) -> tensor<12x20xf32>
    %5 = stablehlo.dot_general %arg0, %4, contracting_dims = [1] x [0] : (tensor<1x12xf32>, tensor<12x20xf32>) -> tensor<1x20xf32>
    %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x20xf32>
    %7 = stablehlo.multiply %5, %6 : tensor<1x20xf32>
    %8 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<1xf32>) -> tensor<1x1xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<1x20xf32>
    %10 = stablehlo.subtract %7, %9 : tensor<1x20xf32>
    %11 = stablehlo.exponential %10 : tensor<1x20xf32>
    %12 = stablehlo.transpose %arg2, dims = [1, 0] : (tensor<20x9xf32>) -> tensor<9x20xf32>
    %13 = stablehlo.dot_general %2, %12, contracting_dims = [1] x [0] : (tensor<1x9xf32>, tensor<9x20xf32>) -> tensor<1x20xf32>
    %14 = stablehlo.broadcast_in_dim %3, dims = [0] : (tensor<1xf32>) -> tensor<1x1xf32>
    %15 = stablehlo.broadcast_in_dim %14, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<1x20xf32>
    %16 = stablehlo.subtract %13, %15 : tensor<1x20xf32>
    %17 = stablehlo.multiply %11, %16 : tensor<1x20xf32>
    %18 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x20xf32>
    %19 = stablehlo.multiply %18, %17 : tensor<1x20xf32>
    %20 = stablehlo.dot_general %19, %arg1, contracting_dims = [1] x [0] : (tensor<1x20xf32>, tensor<20x12xf32>) -> tensor<1x12xf32>
    %21 = stablehlo.transpose %17, dims = [1, 0] : (tensor<1x20xf32>) -> tensor<20x1xf32>
    %22 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<20x1xf32>
    %23 = stablehlo.multiply %22, %21 : tensor<20x1xf32>
    %24 = stablehlo.dot_general %23, %arg0, contracting_dims = [1] x [0] : (tensor<20x1xf32>, tensor<1x12xf32>) -> tensor<20x12xf32>
    %25 = stablehlo.transpose %11, dims = [1, 0] : (tensor<1x20xf32>) -> tensor<20x1xf32>
    %26 = stablehlo.dot_general %25, %2, contracting_dims = [1] x [0] : (tensor<20x1xf32>, tensor<1x9xf32>) -> tensor<20x9xf32>
    return %20, %24, %26, %1 : tensor<1x12xf32>, tensor<20x12xf32>, tensor<20x9xf32>, tensor<9x5xf32>
  }
}
