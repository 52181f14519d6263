module @jit_backward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<32x32xf32>, %arg1: tensor<32x32xf32>, %arg2: tensor<1x32xf32>, %arg3: tensor<32xf32>, %arg4: tensor<32xf32>, %arg5: tensor<32xf32>, %arg6: tensor<1x1xf32>, %arg7: tensor<1x1xf32>, %arg8: tensor<32x1xf32>, %arg9: tensor<3x1xf32>, %arg10: tensor<3x1xf32>, %arg11: tensor<3x1xf32>, %arg12: tensor<4x3xf16>, %arg13: tensor<2x4xf16>, %arg14: tensor<7x2xf16>, %arg15: tensor<3xf16>, %arg16: tensor<4xf16>, %arg17: tensor<2xf16>, %arg18: tensor<23x27xbf16>, %arg19: tensor<29x23xbf16>, %arg20: tensor<20x29xbf16>, %arg21: tensor<27xbf16>, %arg22: tensor<23xbf16>, %arg23: tensor<29xbf16>, %arg24: tensor<1xf32>, %arg25: tensor<3x32xf32>, %arg26: tensor<7xf16>, %arg27: tensor<20xbf16>) -> (tensor<32x32xf32> {jax.result_info = "result[0][0]"}, tensor<32x32xf32> {jax.result_info = "result[0][1]"}, tensor<1x32xf32> {jax.result_info = "result[0][2]"}, tensor<32xf32> {jax.result_info = "result[0][3]"}, tensor<1x1xf32> {jax.result_info = "result[1][0]"}, tensor<1x1xf32> {jax.result_info = "result[1][1]"}, tensor<32x1xf32> {jax.result_info = "result[1][2]"}, tensor<3x1xf32> {jax.result_info = "result[1][3]"}, tensor<4x3xf16> {jax.result_info = "result[2][0]"}, tensor<2x4xf16> {jax.result_info = "result[2][1]"}, tensor<7x2xf16> {jax.result_info = "result[2][2]"}, tensor<3xf16> {jax.result_info = "result[2][3]"}, tensor<23x27xbf16> {jax.result_info = "result[3][0]"}, tensor<29x23xbf16> {jax.result_info = "result[3][1]"}, tensor<20x29xbf16> {jax.result_info = "result[3][2]"}, tensor<27xbf16> {jax.result_info = "result[3][3]"}) {
    %0:4 = call @wrapped_at_each_call(%arg18, %arg21, %arg19, %arg22, %arg20, %arg23, %arg27) : (tensor<23x27xbf16>, tensor<27xbf16>, tensor<29x23xbf16>, tensor<23xbf16>, tensor<20x29xbf16>, tensor<29xbf16>, tensor<20xbf16>) -> (tensor<23x27xbf16>, tensor<29x23xbf16>, tensor<20x29xbf16>, tensor<27xbf16>)
    %1:3 = stablehlo.optimization_barrier %arg2, %arg5, %arg24 : tensor<1x32xf32>, tensor<32xf32>, tensor<1xf32>
    %2 = stablehlo.dot_general %1#0, %1#1, contracting_dims = [1] x [0] : (tensor<1x32xf32>, tensor<32xf32>) -> tensor<1xf32>
    %3 = stablehlo.cosine %2 : tensor<1xf32>
    %4 = stablehlo.multiply %1#2, %3 : tensor<1xf32>
    %5 = stablehlo.dot_general %4, %1#0, contracting_dims = [0] x [0] : (tensor<1xf32>, tensor<1x32xf32>) -> tensor<32xf32>
    %6 = stablehlo.dot_general %4, %1#1, contracting_dims = [] x [] : (tensor<1xf32>, tensor<32xf32>) -> tensor<1x32xf32>
    %7:3 = stablehlo.optimization_barrier %arg1, %arg4, %5 : tensor<32x32xf32>, tensor<32xf32>, tensor<32xf32>
    %8 = stablehlo.dot_general %7#0, %7#1, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32xf32>) -> tensor<32xf32>
    %9 = stablehlo.cosine %8 : tensor<32xf32>
    %10 = stablehlo.multiply %7#2, %9 : tensor<32xf32>
    %11 = stablehlo.dot_general %10, %7#0, contracting_dims = [0] x [0] : (tensor<32xf32>, tensor<32x32xf32>) -> tensor<32xf32>
    %12 = stablehlo.dot_general %10, %7#1, contracting_dims = [] x [] : (tensor<32xf32>, tensor<32xf32>) -> tensor<32x32xf32>
    %13:3 = stablehlo.optimization_barrier %arg0, %arg3, %11 : tensor<32x32xf32>, tensor<32xf32>, tensor<32xf32>
    %14 = stablehlo.dot_general %13#0, %13#1, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32xf32>) -> tensor<32xf32>
    %15 = stablehlo.cosine %14 : tensor<32xf32>
    %16 = stablehlo.multiply %13#2, %15 : tensor<32xf32>
    %17 = stablehlo.dot_general %16, %13#0, contracting_dims = [0] x [0] : (tensor<32xf32>, tensor<32x32xf32>) -> tensor<32xf32>
    %18 = stablehlo.dot_general %16, %13#1, contracting_dims = [] x [] : (tensor<32xf32>, tensor<32xf32>) -> tensor<32x32xf32>
    %19:4 = call @wrapped_at_each_call_0(%arg12, %arg15, %arg13, %arg16, %arg14, %arg17, %arg26) : (tensor<4x3xf16>, tensor<3xf16>, tensor<2x4xf16>, tensor<4xf16>, tensor<7x2xf16>, tensor<2xf16>, tensor<7xf16>) -> (tensor<4x3xf16>, tensor<2x4xf16>, tensor<7x2xf16>, tensor<3xf16>)
    %20:3 = stablehlo.optimization_barrier %arg8, %arg11, %arg25 : tensor<32x1xf32>, tensor<3x1xf32>, tensor<3x32xf32>
    %21 = stablehlo.dot_general %20#0, %20#1, contracting_dims = [1] x [1] : (tensor<32x1xf32>, tensor<3x1xf32>) -> tensor<32x3xf32>
    %22 = stablehlo.cosine %21 : tensor<32x3xf32>
    %23 = stablehlo.transpose %20#2, dims = [1, 0] : (tensor<3x32xf32>) -> tensor<32x3xf32>
    %24 = stablehlo.multiply %23, %22 : tensor<32x3xf32>
    %25 = stablehlo.dot_general %24, %20#0, contracting_dims = [0] x [0] : (tensor<32x3xf32>, tensor<32x1xf32>) -> tensor<3x1xf32>
    %26 = stablehlo.dot_general %24, %20#1, contracting_dims = [1] x [0] : (tensor<32x3xf32>, tensor<3x1xf32>) -> tensor<32x1xf32>
    %27:3 = stablehlo.optimization_barrier %arg7, %arg10, %25 : tensor<1x1xf32>, tensor<3x1xf32>, tensor<3x1xf32>
    %28 = stablehlo.dot_general %27#0, %27#1, contracting_dims = [1] x [1] : (tensor<1x1xf32>, tensor<3x1xf32>) -> tensor<1x3xf32>
    %29 = stablehlo.cosine %28 : tensor<1x3xf32>
    %30 = stablehlo.transpose %27#2, dims = [1, 0] : (tensor<3x1xf32>) -> tensor<1x3xf32>
    %31 = stablehlo.multiply %30, %29 : tensor<1x3xf32>
    %32 = stablehlo.dot_general %31, %27#0, contracting_dims = [0] x [0] : (tensor<1x3xf32>, tensor<1x1xf32>) -> tensor<3x1xf32>
    %33 = stablehlo.dot_general %31, %27#1, contracting_dims = [1] x [0] : (tensor<1x3xf32>, tensor<3x1xf32>) -> tensor<1x1xf32>
    %34:3 = stablehlo.optimization_barrier %arg6, %arg9, %32 : tensor<1x1xf32>, tensor<3x1xf32>, tensor<3x1xf32>
    %35 = stablehlo.dot_general %34#0, %34#1, contracting_dims = [1] x [1] : (tensor<1x1xf32>, tensor<3x1xf32>) -> tensor<1x3xf32>
    %36 = stablehlo.cosine %35 : tensor<1x3xf32>
    %37 = stablehlo.transpose %34#2, dims = [1, 0] : (tensor<3x1xf32>) -> tensor<1x3xf32>
    %38 = stablehlo.multiply %37, %36 : tensor<1x3xf32>
    %39 = stablehlo.dot_general %38, %34#0, contracting_dims = [0] x [0] : (tensor<1x3xf32>, tensor<1x1xf32>) -> tensor<3x1xf32>
    %40 = stablehlo.dot_general %38, %34#1, contracting_dims = [1] x [0] : (tensor<1x3xf32>, tensor<3x1xf32>) -> tensor<1x1xf32>
    return %18, %12, %6, %17, %40, %33, %26, %39, %19#0, %19#1, %19#2, %19#3, %0#0, %0#1, %0#2, %0#3 : tensor<32x32xf32>, tensor<32x32xf32>, tensor<1x32xf32>, tensor<32xf32>, tensor<1x1xf32>, tensor<1x1xf32>, tensor<32x1xf32>, tensor<3x1xf32>, tensor<4x3xf16>, tensor<2x4xf16>, tensor<7x2xf16>, tensor<3xf16>, tensor<23x27xbf16>, tensor<29x23xbf16>, tensor<20x29xbf16>, tensor<27xbf16>
  }
  func.func private @wrapped_at_each_call(%arg0: tensor<23x27xbf16>, %arg1: tensor<27xbf16>, %arg2: tensor<29x23xbf16>, %arg3: tensor<23xbf16>, %arg4: tensor<20x29xbf16>, %arg5: tensor<29xbf16>, %arg6: tensor<20xbf16>) -> (tensor<23x27xbf16>, tensor<29x23xbf16>, tensor<20x29xbf16>, tensor<27xbf16>) {
    %0:3 = stablehlo.optimization_barrier %arg4, %arg5, %arg6 : tensor<20x29xbf16>, tensor<29xbf16>, tensor<20xbf16>
    %1 = stablehlo.dot_general %0#0, %0#1, contracting_dims = [1] x [0] : (tensor<20x29xbf16>, tensor<29xbf16>) -> tensor<20xbf16>
    %2 = stablehlo.cosine %1 : tensor<20xbf16>
    %3 = stablehlo.multiply %0#2, %2 : tensor<20xbf16>
    %4 = stablehlo.dot_general %3, %0#0, contracting_dims = [0] x [0] : (tensor<20xbf16>, tensor<20x29xbf16>) -> tensor<29xbf16>
    %5 = stablehlo.dot_general %3, %0#1, contracting_dims = [] x [] : (tensor<20xbf16>, tensor<29xbf16>) -> tensor<20x29xbf16>
    %6:3 = stablehlo.optimization_barrier %arg2, %arg3, %4 : tensor<29x23xbf16>, tensor<23xbf16>, tensor<29xbf16>
    %7 = stablehlo.dot_general %6#0, %6#1, contracting_dims = [1] x [0] : (tensor<29x23xbf16>, tensor<23xbf16>) -> tensor<29xbf16>
    %8 = stablehlo.cosine %7 : tensor<29xbf16>
    %9 = stablehlo.multiply %6#2, %8 : tensor<29xbf16>
    %10 = stablehlo.dot_general %9, %6#0, contracting_dims = [0] x [0] : (tensor<29xbf16>, tensor<29x23xbf16>) -> tensor<23xbf16>
    %11 = stablehlo.dot_general %9, %6#1, contracting_dims = [] x [] : (tensor<29xbf16>, tensor<23xbf16>) -> tensor<29x23xbf16>
    %12:3 = stablehlo.optimization_barrier %arg0, %arg1, %10 : tensor<23x27xbf16>, tensor<27xbf16>, tensor<23xbf16>
    %13 = stablehlo.dot_general %12#0, %12#1, contracting_dims = [1] x [0] : (tensor<23x27xbf16>, tensor<27xbf16>) -> tensor<23xbf16>
    %14 = stablehlo.cosine %13 : tensor<23xbf16>
    %15 = stablehlo.multiply %12#2, %14 : tensor<23xbf16>
    %16 = stablehlo.dot_general %15, %12#0, contracting_dims = [0] x [0] : (tensor<23xbf16>, tensor<23x27xbf16>) -> tensor<27xbf16>
    %17 = stablehlo.dot_general %15, %12#1, contracting_dims = [] x [] : (tensor<23xbf16>, tensor<27xbf16>) -> tensor<23x27xbf16>
    return %17, %11, %5, %16 : tensor<23x27xbf16>, tensor<29x23xbf16>, tensor<20x29xbf16>, tensor<27xbf16>
  }
  func.func private @wrapped_at_each_call_0(%arg0: tensor<4x3xf16>, %arg1: tensor<3xf16>, %arg2: tensor<2x4xf16>, %arg3: tensor<4xf16>, %arg4: tensor<7x2xf16>, %arg5: tensor<2xf16>, %arg6: tensor<7xf16>) -> (tensor<4x3xf16>, tensor<2x4xf16>, tensor<7x2xf16>, tensor<3xf16>) {
    %0:3 = stablehlo.optimization_barrier %arg4, %arg5, %arg6 : tensor<7x2xf16>, tensor<2xf16>, tensor<7xf16>
    %1 = stablehlo.dot_general %0#0, %0#1, contracting_dims = [1] x [0] : (tensor<7x2xf16>, tensor<2xf16>) -> tensor<7xf16>
    %2 = stablehlo.cosine %1 : tensor<7xf16>
    %3 = stablehlo.multiply %0#2, %2 : tensor<7xf16>
    %4 = stablehlo.dot_general %3, %0#0, contracting_dims = [0] x [0] : (tensor<7xf16>, tensor<7x2xf16>) -> tensor<2xf16>
    %5 = stablehlo.dot_general %3, %0#1, contracting_dims = [] x [] : (tensor<7xf16>, tensor<2xf16>) -> tensor<7x2xf16>
    %6:3 = stablehlo.optimization_barrier %arg2, %arg3, %4 : tensor<2x4xf16>, tensor<4xf16>, tensor<2xf16>
    %7 = stablehlo.dot_general %6#0, %6#1, contracting_dims = [1] x [0] : (tensor<2x4xf16>, tensor<4xf16>) -> tensor<2xf16>
    %8 = stablehlo.cosine %7 : tensor<2xf16>
    %9 = stablehlo.multiply %6#2, %8 : tensor<2xf16>
    %10 = stablehlo.dot_general %9, %6#0, contracting_dims = [0] x [0] : (tensor<2xf16>, tensor<2x4xf16>) -> tensor<4xf16>
    %11 = stablehlo.dot_general %9, %6#1, contracting_dims = [] x [] : (tensor<2xf16>, tensor<4xf16>) -> tensor<2x4xf16>
    %12:3 = stablehlo.optimization_barrier %arg0, %arg1, %10 : tensor<4x3xf16>, tensor<3xf16>, tensor<4xf16>
    %13 = stablehlo.dot_general %12#0, %12#1, contracting_dims = [1] x [0] : (tensor<4x3xf16>, tensor<3xf16>) -> tensor<4xf16>
    %14 = stablehlo.cosine %13 : tensor<4xf16>
    %15 = stablehlo.multiply %12#2, %14 : tensor<4xf16>
    %16 = stablehlo.dot_general %15, %12#0, contracting_dims = [0] x [0] : (tensor<4xf16>, tensor<4x3xf16>) -> tensor<3xf16>
    %17 = stablehlo.dot_general %15, %12#1, contracting_dims = [] x [] : (tensor<4xf16>, tensor<3xf16>) -> tensor<4x3xf16>
    return %17, %11, %5, %16 : tensor<4x3xf16>, tensor<2x4xf16>, tensor<7x2xf16>, tensor<3xf16>
  }
}
