module @jit_backward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x27xf32>, %arg1: tensor<27x27xf32>, %arg2: tensor<27x27xf32>, %arg3: tensor<5x27xf32>, %arg4: tensor<27x27xf32>, %arg5: tensor<2x32x1xf32>, %arg6: tensor<1x1xf32>, %arg7: tensor<1x1xf32>, %arg8: tensor<2x32x1xf32>, %arg9: tensor<2x21xf16>, %arg10: tensor<21x21xf16>, %arg11: tensor<21x21xf16>, %arg12: tensor<2x21xi1>, %arg13: tensor<21xf16>, %arg14: tensor<21x21xf16>, %arg15: tensor<1x32xf32>, %arg16: tensor<32x32xf32>, %arg17: tensor<32x32xf32>, %arg18: tensor<1x32xf32>, %arg19: tensor<1x32xi32>, %arg20: tensor<f32>, %arg21: tensor<f32>, %arg22: tensor<5x27xf32>, %arg23: tensor<2x32x1xf32>, %arg24: tensor<2x21xf16>, %arg25: tensor<1x32xf32>) -> (tensor<5x27xf32> {jax.result_info = "result[0][0]"}, tensor<2x32x1xf32> {jax.result_info = "result[1][0]"}, tensor<2x21xf16> {jax.result_info = "result[2][0]"}, tensor<1x32xf32> {jax.result_info = "result[3][0]"}) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<2> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = call @_flip(%arg15) : (tensor<1x32xf32>) -> tensor<1x32xf32>
    %1 = stablehlo.add %arg15, %0 : tensor<1x32xf32>
    %2 = stablehlo.dot_general %1, %arg16, contracting_dims = [1] x [0] : (tensor<1x32xf32>, tensor<32x32xf32>) -> tensor<1x32xf32>
    %3 = stablehlo.sine %2 : tensor<1x32xf32>
    %4 = stablehlo.cosine %2 : tensor<1x32xf32>
    %5 = stablehlo.dot_general %3, %arg17, contracting_dims = [1] x [0] : (tensor<1x32xf32>, tensor<32x32xf32>) -> tensor<1x32xf32>
    %6 = stablehlo.cosine %5 : tensor<1x32xf32>
    %7 = stablehlo.multiply %arg25, %arg18 : tensor<1x32xf32>
    %8 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x32xf32>
    %9 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<1x32xi32>
    %10 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<1x32xi32>
    %11 = stablehlo.clamp %9, %arg19, %10 : tensor<1x32xi32>
    %12 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<1x32xi32>
    %13 = stablehlo.compare EQ, %11, %12, SIGNED : (tensor<1x32xi32>, tensor<1x32xi32>) -> tensor<1x32xi1>
    %14 = stablehlo.select %13, %7, %8 : tensor<1x32xi1>, tensor<1x32xf32>
    %15 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<1x32xi32>
    %16 = stablehlo.compare EQ, %11, %15, SIGNED : (tensor<1x32xi32>, tensor<1x32xi32>) -> tensor<1x32xi1>
    %17 = stablehlo.select %16, %7, %8 : tensor<1x32xi1>, tensor<1x32xf32>
    %18 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<1x32xi32>
    %19 = stablehlo.compare EQ, %11, %18, SIGNED : (tensor<1x32xi32>, tensor<1x32xi32>) -> tensor<1x32xi1>
    %20 = stablehlo.select %19, %7, %8 : tensor<1x32xi1>, tensor<1x32xf32>
    %21 = stablehlo.broadcast_in_dim %arg20, dims = [] : (tensor<f32>) -> tensor<1x32xf32>
    %22 = stablehlo.multiply %21, %20 : tensor<1x32xf32>
    %23 = stablehlo.broadcast_in_dim %arg21, dims = [] : (tensor<f32>) -> tensor<1x32xf32>
    %24 = stablehlo.divide %17, %23 : tensor<1x32xf32>
    %25 = stablehlo.add %22, %24 : tensor<1x32xf32>
    %26 = stablehlo.add %25, %14 : tensor<1x32xf32>
    %27 = stablehlo.multiply %26, %6 : tensor<1x32xf32>
    %28 = stablehlo.dot_general %27, %arg17, contracting_dims = [1] x [1] : (tensor<1x32xf32>, tensor<32x32xf32>) -> tensor<1x32xf32>
    %29 = stablehlo.multiply %28, %4 : tensor<1x32xf32>
    %30 = stablehlo.dot_general %29, %arg16, contracting_dims = [1] x [1] : (tensor<1x32xf32>, tensor<32x32xf32>) -> tensor<1x32xf32>
    %31 = call @_flip_0(%30) : (tensor<1x32xf32>) -> tensor<1x32xf32>
    %32 = stablehlo.add %30, %31 : tensor<1x32xf32>
    %33 = call @_flip_1(%arg0) : (tensor<5x27xf32>) -> tensor<5x27xf32>
    %34 = stablehlo.add %arg0, %33 : tensor<5x27xf32>
    %35 = stablehlo.dot_general %34, %arg1, contracting_dims = [1] x [0] : (tensor<5x27xf32>, tensor<27x27xf32>) -> tensor<5x27xf32>
    %36 = stablehlo.sine %35 : tensor<5x27xf32>
    %37 = stablehlo.cosine %35 : tensor<5x27xf32>
    %38 = stablehlo.dot_general %36, %arg2, contracting_dims = [1] x [0] : (tensor<5x27xf32>, tensor<27x27xf32>) -> tensor<5x27xf32>
    %39 = stablehlo.cosine %38 : tensor<5x27xf32>
    %40 = stablehlo.multiply %arg22, %arg3 : tensor<5x27xf32>
    %41 = stablehlo.dot_general %40, %arg4, contracting_dims = [1] x [1] : (tensor<5x27xf32>, tensor<27x27xf32>) -> tensor<5x27xf32>
    %42 = stablehlo.multiply %41, %39 : tensor<5x27xf32>
    %43 = stablehlo.dot_general %42, %arg2, contracting_dims = [1] x [1] : (tensor<5x27xf32>, tensor<27x27xf32>) -> tensor<5x27xf32>
    %44 = stablehlo.multiply %43, %37 : tensor<5x27xf32>
    %45 = stablehlo.dot_general %44, %arg1, contracting_dims = [1] x [1] : (tensor<5x27xf32>, tensor<27x27xf32>) -> tensor<5x27xf32>
    %46 = call @_flip_2(%45) : (tensor<5x27xf32>) -> tensor<5x27xf32>
    %47 = stablehlo.add %45, %46 : tensor<5x27xf32>
    %48 = call @_flip_3(%arg9) : (tensor<2x21xf16>) -> tensor<2x21xf16>
    %49 = stablehlo.add %arg9, %48 : tensor<2x21xf16>
    %50 = stablehlo.dot_general %49, %arg10, contracting_dims = [1] x [0] : (tensor<2x21xf16>, tensor<21x21xf16>) -> tensor<2x21xf16>
    %51 = stablehlo.sine %50 : tensor<2x21xf16>
    %52 = stablehlo.cosine %50 : tensor<2x21xf16>
    %53 = stablehlo.dot_general %51, %arg11, contracting_dims = [1] x [0] : (tensor<2x21xf16>, tensor<21x21xf16>) -> tensor<2x21xf16>
    %54 = stablehlo.cosine %53 : tensor<2x21xf16>
    %55 = call @_where(%arg12, %arg13, %arg24) : (tensor<2x21xi1>, tensor<21xf16>, tensor<2x21xf16>) -> tensor<2x21xf16>
    %56 = stablehlo.dot_general %55, %arg14, contracting_dims = [1] x [1] : (tensor<2x21xf16>, tensor<21x21xf16>) -> tensor<2x21xf16>
    %57 = stablehlo.multiply %56, %54 : tensor<2x21xf16>
    %58 = stablehlo.dot_general %57, %arg11, contracting_dims = [1] x [1] : (tensor<2x21xf16>, tensor<21x21xf16>) -> tensor<2x21xf16>
    %59 = stablehlo.multiply %58, %52 : tensor<2x21xf16>
    %60 = stablehlo.dot_general %59, %arg10, contracting_dims = [1] x [1] : (tensor<2x21xf16>, tensor<21x21xf16>) -> tensor<2x21xf16>
    %61 = call @_flip_4(%60) : (tensor<2x21xf16>) -> tensor<2x21xf16>
    %62 = stablehlo.add %60, %61 : tensor<2x21xf16>
    %63 = call @"<lambda>"(%arg5, %arg6, %arg7, %arg8, %arg23) : (tensor<2x32x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>, tensor<2x32x1xf32>, tensor<2x32x1xf32>) -> tensor<2x32x1xf32>
    return %47, %63, %62, %32 : tensor<5x27xf32>, tensor<2x32x1xf32>, tensor<2x21xf16>, tensor<1x32xf32>
  }
  func.func private @_flip(%arg0: tensor<1x32xf32>) -> tensor<1x32xf32> {
    %0 = stablehlo.reverse %arg0, dims = [0] : tensor<1x32xf32>
    return %0 : tensor<1x32xf32>
  }
  func.func private @_flip_0(%arg0: tensor<1x32xf32>) -> tensor<1x32xf32> {
    %0 = stablehlo.reverse %arg0, dims = [0] : tensor<1x32xf32>
    return %0 : tensor<1x32xf32>
  }
  func.func private @_flip_1(%arg0: tensor<5x27xf32>) -> tensor<5x27xf32> {
    %0 = stablehlo.reverse %arg0, dims = [0] : tensor<5x27xf32>
    return %0 : tensor<5x27xf32>
  }
  func.func private @_flip_2(%arg0: tensor<5x27xf32>) -> tensor<5x27xf32> {
    %0 = stablehlo.reverse %arg0, dims = [0] : tensor<5x27xf32>
    return %0 : tensor<5x27xf32>
  }
  func.func private @_flip_3(%arg0: tensor<2x21xf16>) -> tensor<2x21xf16> {
    %0 = stablehlo.reverse %arg0, dims = [1] : tensor<2x21xf16>
    return %0 : tensor<2x21xf16>
  }
  func.func private @_where(%arg0: tensor<2x21xi1>, %arg1: tensor<21xf16>, %arg2: tensor<2x21xf16>) -> tensor<2x21xf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f16>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<21xf16>
    %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<21xf16>) -> tensor<2x21xf16>
    %2 = stablehlo.select %arg0, %arg2, %1 : tensor<2x21xi1>, tensor<2x21xf16>
    return %2 : tensor<2x21xf16>
  }
  func.func private @_flip_4(%arg0: tensor<2x21xf16>) -> tensor<2x21xf16> {
    %0 = stablehlo.reverse %arg0, dims = [1] : tensor<2x21xf16>
    return %0 : tensor<2x21xf16>
  }
  func.func private @"<lambda>"(%arg0: tensor<2x32x1xf32>, %arg1: tensor<1x1xf32>, %arg2: tensor<1x1xf32>, %arg3: tensor<2x32x1xf32>, %arg4: tensor<2x32x1xf32>) -> tensor<2x32x1xf32> {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %0 = call @_flip_5(%arg0) : (tensor<2x32x1xf32>) -> tensor<2x32x1xf32>
    %1 = stablehlo.add %arg0, %0 : tensor<2x32x1xf32>
    %2 = stablehlo.dot_general %1, %arg1, contracting_dims = [2] x [0] : (tensor<2x32x1xf32>, tensor<1x1xf32>) -> tensor<2x32x1xf32>
    %3 = stablehlo.tanh %2 : tensor<2x32x1xf32>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x32x1xf32>
    %5 = stablehlo.add %4, %3 : tensor<2x32x1xf32>
    %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x32x1xf32>
    %7 = stablehlo.subtract %6, %3 : tensor<2x32x1xf32>
    %8 = stablehlo.multiply %5, %7 : tensor<2x32x1xf32>
    %9 = stablehlo.dot_general %3, %arg2, contracting_dims = [2] x [0] : (tensor<2x32x1xf32>, tensor<1x1xf32>) -> tensor<2x32x1xf32>
    %10 = stablehlo.tanh %9 : tensor<2x32x1xf32>
    %11 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x32x1xf32>
    %12 = stablehlo.add %11, %10 : tensor<2x32x1xf32>
    %13 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x32x1xf32>
    %14 = stablehlo.subtract %13, %10 : tensor<2x32x1xf32>
    %15 = stablehlo.multiply %12, %14 : tensor<2x32x1xf32>
    %16 = stablehlo.multiply %arg3, %arg4 : tensor<2x32x1xf32>
    %17 = stablehlo.multiply %arg4, %arg3 : tensor<2x32x1xf32>
    %18 = stablehlo.add %17, %16 : tensor<2x32x1xf32>
    %19 = stablehlo.multiply %18, %15 : tensor<2x32x1xf32>
    %20 = stablehlo.dot_general %19, %arg2, contracting_dims = [2] x [1] : (tensor<2x32x1xf32>, tensor<1x1xf32>) -> tensor<2x32x1xf32>
    %21 = stablehlo.multiply %20, %8 : tensor<2x32x1xf32>
    %22 = stablehlo.dot_general %21, %arg1, contracting_dims = [2] x [1] : (tensor<2x32x1xf32>, tensor<1x1xf32>) -> tensor<2x32x1xf32>
    %23 = call @_flip_6(%22) : (tensor<2x32x1xf32>) -> tensor<2x32x1xf32>
    %24 = stablehlo.add %22, %23 : tensor<2x32x1xf32>
    return %24 : tensor<2x32x1xf32>
  }
  func.func private @_flip_5(%arg0: tensor<2x32x1xf32>) -> tensor<2x32x1xf32> {
    %0 = stablehlo.reverse %arg0, dims = [0] : tensor<2x32x1xf32>
    return %0 : tensor<2x32x1xf32>
  }
  func.func private @_flip_6(%arg0: tensor<2x32x1xf32>) -> tensor<2x32x1xf32> {
    %0 = stablehlo.reverse %arg0, dims = [0] : tensor<2x32x1xf32>
    return %0 : tensor<2x32x1xf32>
  }
}
