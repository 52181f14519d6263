module @jit_forward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x9x9xf32>, %arg1: tensor<9xf32>, %arg2: tensor<1x1x1xf32>, %arg3: tensor<1xf32>, %arg4: tensor<4x12x12xf16>, %arg5: tensor<2x12xf16>, %arg6: tensor<35x4x4xf32>, %arg7: tensor<2x4xf32>, %arg8: tensor<64x5x5xf32>, %arg9: tensor<5xf32>) -> (tensor<9xf32> {jax.result_info = "result[0][0][0]"}, tensor<5x9x9xf32> {jax.result_info = "result[0][1][0]"}, tensor<5x9xf32> {jax.result_info = "result[0][1][1]"}, tensor<1xf32> {jax.result_info = "result[1][0][0]"}, tensor<1x1x1xf32> {jax.result_info = "result[1][1][0]"}, tensor<1x1xf32> {jax.result_info = "result[1][1][1]"}, tensor<1xf32> {jax.result_info = "result[1][2][0]"}, tensor<2x12xf16> {jax.result_info = "result[2][0][0]"}, tensor<4x12x12xf16> {jax.result_info = "result[2][1][0]"}, tensor<4x2x12xf16> {jax.result_info = "result[2][1][1]"}, tensor<2x4xf32> {jax.result_info = "result[3][0][0]"}, tensor<35x4x4xf32> {jax.result_info = "result[3][1][0]"}, tensor<35x2x4xf32> {jax.result_info = "result[3][1][1]"}, tensor<5xf32> {jax.result_info = "result[4][0][0]"}, tensor<64x5x5xf32> {jax.result_info = "result[4][1][0]"}, tensor<64x5xf32> {jax.result_info = "result[4][1][1]"}) {
    %c = stablehlo.constant dense<4> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f16>
    %c_0 = stablehlo.constant dense<5> : tensor<i32>
    %c_1 = stablehlo.constant dense<35> : tensor<i32>
    %c_2 = stablehlo.constant dense<1> : tensor<i32>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<1x1xf32>
    %1:4 = stablehlo.while(%iterArg = %arg2, %iterArg_5 = %c_3, %iterArg_6 = %arg3, %iterArg_7 = %0) : tensor<1x1x1xf32>, tensor<i32>, tensor<1xf32>, tensor<1x1xf32>
    cond {
      %10 = stablehlo.compare LT, %iterArg_5, %c_2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %10 : tensor<i1>
    } do {
      %10 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_5) : (tensor<1x1x1xf32>, tensor<i32>) -> tensor<1x1xf32>
      %11 = stablehlo.sine %iterArg_6 : tensor<1xf32>
      %12 = stablehlo.dot_general %10, %11, contracting_dims = [1] x [0] : (tensor<1x1xf32>, tensor<1xf32>) -> tensor<1xf32>
      %13 = stablehlo.sine %12 : tensor<1xf32>
      %14 = stablehlo.add %iterArg_6, %13 : tensor<1xf32>
      %15 = func.call @dynamic_update_index_in_dim(%iterArg_7, %iterArg_6, %iterArg_5) : (tensor<1x1xf32>, tensor<1xf32>, tensor<i32>) -> tensor<1x1xf32>
      %16 = stablehlo.add %iterArg_5, %c_2 : tensor<i32>
      stablehlo.return %iterArg, %16, %14, %15 : tensor<1x1x1xf32>, tensor<i32>, tensor<1xf32>, tensor<1x1xf32>
    }
    %2:2 = call @checkpointed_layer(%arg8, %arg9) : (tensor<64x5x5xf32>, tensor<5xf32>) -> (tensor<5xf32>, tensor<64x5xf32>)
    %3 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<35x2x4xf32>
    %4:4 = stablehlo.while(%iterArg = %arg6, %iterArg_5 = %c_3, %iterArg_6 = %arg7, %iterArg_7 = %3) : tensor<35x4x4xf32>, tensor<i32>, tensor<2x4xf32>, tensor<35x2x4xf32>
    cond {
      %10 = stablehlo.compare LT, %iterArg_5, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %10 : tensor<i1>
    } do {
      %10 = func.call @dynamic_index_in_dim_2(%iterArg, %iterArg_5) : (tensor<35x4x4xf32>, tensor<i32>) -> tensor<4x4xf32>
      %11 = stablehlo.sine %iterArg_6 : tensor<2x4xf32>
      %12 = stablehlo.dot_general %10, %11, contracting_dims = [1] x [1] : (tensor<4x4xf32>, tensor<2x4xf32>) -> tensor<4x2xf32>
      %13 = stablehlo.sine %12 : tensor<4x2xf32>
      %14 = stablehlo.transpose %13, dims = [1, 0] : (tensor<4x2xf32>) -> tensor<2x4xf32>
      %15 = stablehlo.add %iterArg_6, %14 : tensor<2x4xf32>
      %16 = func.call @dynamic_update_index_in_dim_3(%iterArg_7, %iterArg_6, %iterArg_5) : (tensor<35x2x4xf32>, tensor<2x4xf32>, tensor<i32>) -> tensor<35x2x4xf32>
      %17 = stablehlo.add %iterArg_5, %c_2 : tensor<i32>
      stablehlo.return %iterArg, %17, %15, %16 : tensor<35x4x4xf32>, tensor<i32>, tensor<2x4xf32>, tensor<35x2x4xf32>
    }
    %5 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<5x9xf32>
    %6:4 = stablehlo.while(%iterArg = %arg0, %iterArg_5 = %c_3, %iterArg_6 = %arg1, %iterArg_7 = %5) : tensor<5x9x9xf32>, tensor<i32>, tensor<9xf32>, tensor<5x9xf32>
    cond {
      %10 = stablehlo.compare LT, %iterArg_5, %c_0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %10 : tensor<i1>
    } do {
      %10 = func.call @dynamic_index_in_dim_4(%iterArg, %iterArg_5) : (tensor<5x9x9xf32>, tensor<i32>) -> tensor<9x9xf32>
      %11 = stablehlo.sine %iterArg_6 : tensor<9xf32>
      %12 = stablehlo.dot_general %10, %11, contracting_dims = [1] x [0] : (tensor<9x9xf32>, tensor<9xf32>) -> tensor<9xf32>
      %13 = stablehlo.sine %12 : tensor<9xf32>
      %14 = stablehlo.add %iterArg_6, %13 : tensor<9xf32>
      %15 = func.call @dynamic_update_index_in_dim_5(%iterArg_7, %iterArg_6, %iterArg_5) : (tensor<5x9xf32>, tensor<9xf32>, tensor<i32>) -> tensor<5x9xf32>
      %16 = stablehlo.add %iterArg_5, %c_2 : tensor<i32>
      stablehlo.return %iterArg, %16, %14, %15 : tensor<5x9x9xf32>, tensor<i32>, tensor<9xf32>, tensor<5x9xf32>
    }
    %7 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<4x2x12xf16>
    %8:4 = stablehlo.while(%iterArg = %arg4, %iterArg_5 = %c_3, %iterArg_6 = %arg5, %iterArg_7 = %7) : tensor<4x12x12xf16>, tensor<i32>, tensor<2x12xf16>, tensor<4x2x12xf16>
    cond {
      %10 = stablehlo.compare LT, %iterArg_5, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %10 : tensor<i1>
    } do {
      %10 = func.call @dynamic_index_in_dim_6(%iterArg, %iterArg_5) : (tensor<4x12x12xf16>, tensor<i32>) -> tensor<12x12xf16>
      %11 = stablehlo.sine %iterArg_6 : tensor<2x12xf16>
      %12 = stablehlo.dot_general %10, %11, contracting_dims = [1] x [1] : (tensor<12x12xf16>, tensor<2x12xf16>) -> tensor<12x2xf16>
      %13 = stablehlo.sine %12 : tensor<12x2xf16>
      %14 = stablehlo.transpose %13, dims = [1, 0] : (tensor<12x2xf16>) -> tensor<2x12xf16>
      %15 = stablehlo.add %iterArg_6, %14 : tensor<2x12xf16>
      %16 = func.call @dynamic_update_index_in_dim_7(%iterArg_7, %iterArg_6, %iterArg_5) : (tensor<4x2x12xf16>, tensor<2x12xf16>, tensor<i32>) -> tensor<4x2x12xf16>
      %17 = stablehlo.add %iterArg_5, %c_2 : tensor<i32>
      stablehlo.return %iterArg, %17, %15, %16 : tensor<4x12x12xf16>, tensor<i32>, tensor<2x12xf16>, tensor<4x2x12xf16>
    }
    %9:3 = stablehlo.while(%iterArg = %arg2, %iterArg_5 = %c_3, %iterArg_6 = %arg3) : tensor<1x1x1xf32>, tensor<i32>, tensor<1xf32>
    cond {
      %10 = stablehlo.compare LT, %iterArg_5, %c_2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %10 : tensor<i1>
    } do {
      %10 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_5) : (tensor<1x1x1xf32>, tensor<i32>) -> tensor<1x1xf32>
      %11 = stablehlo.sine %iterArg_6 : tensor<1xf32>
      %12 = stablehlo.dot_general %10, %11, contracting_dims = [1] x [0] : (tensor<1x1xf32>, tensor<1xf32>) -> tensor<1xf32>
      %13 = stablehlo.sine %12 : tensor<1xf32>
      %14 = stablehlo.add %iterArg_6, %13 : tensor<1xf32>
      %15 = stablehlo.add %iterArg_5, %c_2 : tensor<i32>
      stablehlo.return %iterArg, %15, %14 : tensor<1x1x1xf32>, tensor<i32>, tensor<1xf32>
    }
    return %6#2, %arg0, %6#3, %1#2, %arg2, %1#3, %9#2, %8#2, %arg4, %8#3, %4#2, %arg6, %4#3, %2#0, %arg8, %2#1 : tensor<9xf32>, tensor<5x9x9xf32>, tensor<5x9xf32>, tensor<1xf32>, tensor<1x1x1xf32>, tensor<1x1xf32>, tensor<1xf32>, tensor<2x12xf16>, tensor<4x12x12xf16>, tensor<4x2x12xf16>, tensor<2x4xf32>, tensor<35x4x4xf32>, tensor<35x2x4xf32>, tensor<5xf32>, tensor<64x5x5xf32>, tensor<64x5xf32>
  }
  func.func private @dynamic_index_in_dim(%arg0: tensor<1x1x1xf32>, %arg1: tensor<i32>) -> tensor<1x1xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c, sizes = [1, 1, 1] : (tensor<1x1x1xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x1xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x1x1xf32>) -> tensor<1x1xf32>
    return %1 : tensor<1x1xf32>
  }
  func.func private @dynamic_update_index_in_dim(%arg0: tensor<1x1xf32>, %arg1: tensor<1xf32>, %arg2: tensor<i32>) -> tensor<1x1xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<1xf32>) -> tensor<1x1xf32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c : (tensor<1x1xf32>, tensor<1x1xf32>, tensor<i32>, tensor<i32>) -> tensor<1x1xf32>
    return %1 : tensor<1x1xf32>
  }
  func.func private @checkpointed_layer(%arg0: tensor<64x5x5xf32>, %arg1: tensor<5xf32>) -> (tensor<5xf32>, tensor<64x5xf32>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<64> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<64x5xf32>
    %1:4 = stablehlo.while(%iterArg = %arg0, %iterArg_2 = %c_1, %iterArg_3 = %arg1, %iterArg_4 = %0) : tensor<64x5x5xf32>, tensor<i32>, tensor<5xf32>, tensor<64x5xf32>
    cond {
      %2 = stablehlo.compare LT, %iterArg_2, %c_0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = func.call @dynamic_index_in_dim_0(%iterArg, %iterArg_2) : (tensor<64x5x5xf32>, tensor<i32>) -> tensor<5x5xf32>
      %3 = stablehlo.sine %iterArg_3 : tensor<5xf32>
      %4 = stablehlo.dot_general %2, %3, contracting_dims = [1] x [0] : (tensor<5x5xf32>, tensor<5xf32>) -> tensor<5xf32>
      %5 = stablehlo.sine %4 : tensor<5xf32>
      %6 = stablehlo.add %iterArg_3, %5 : tensor<5xf32>
      %7 = func.call @dynamic_update_index_in_dim_1(%iterArg_4, %iterArg_3, %iterArg_2) : (tensor<64x5xf32>, tensor<5xf32>, tensor<i32>) -> tensor<64x5xf32>
      %8 = stablehlo.add %iterArg_2, %c : tensor<i32>
      stablehlo.return %iterArg, %8, %6, %7 : tensor<64x5x5xf32>, tensor<i32>, tensor<5xf32>, tensor<64x5xf32>
    }
    return %1#2, %1#3 : tensor<5xf32>, tensor<64x5xf32>
  }
  func.func private @dynamic_index_in_dim_0(%arg0: tensor<64x5x5xf32>, %arg1: tensor<i32>) -> tensor<5x5xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c, sizes = [1, 5, 5] : (tensor<64x5x5xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x5xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x5x5xf32>) -> tensor<5x5xf32>
    return %1 : tensor<5x5xf32>
  }
  func.func private @dynamic_update_index_in_dim_1(%arg0: tensor<64x5xf32>, %arg1: tensor<5xf32>, %arg2: tensor<i32>) -> tensor<64x5xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<5xf32>) -> tensor<1x5xf32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c : (tensor<64x5xf32>, tensor<1x5xf32>, tensor<i32>, tensor<i32>) -> tensor<64x5xf32>
    return %1 : tensor<64x5xf32>
  }
  func.func private @dynamic_index_in_dim_2(%arg0: tensor<35x4x4xf32>, %arg1: tensor<i32>) -> tensor<4x4xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c, sizes = [1, 4, 4] : (tensor<35x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    return %1 : tensor<4x4xf32>
  }
  func.func private @dynamic_update_index_in_dim_3(%arg0: tensor<35x2x4xf32>, %arg1: tensor<2x4xf32>, %arg2: tensor<i32>) -> tensor<35x2x4xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<2x4xf32>) -> tensor<1x2x4xf32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c : (tensor<35x2x4xf32>, tensor<1x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<35x2x4xf32>
    return %1 : tensor<35x2x4xf32>
  }
  func.func private @dynamic_index_in_dim_4(%arg0: tensor<5x9x9xf32>, %arg1: tensor<i32>) -> tensor<9x9xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c, sizes = [1, 9, 9] : (tensor<5x9x9xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x9x9xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x9x9xf32>) -> tensor<9x9xf32>
    return %1 : tensor<9x9xf32>
  }
  func.func private @dynamic_update_index_in_dim_5(%arg0: tensor<5x9xf32>, %arg1: tensor<9xf32>, %arg2: tensor<i32>) -> tensor<5x9xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<9xf32>) -> tensor<1x9xf32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c : (tensor<5x9xf32>, tensor<1x9xf32>, tensor<i32>, tensor<i32>) -> tensor<5x9xf32>
    return %1 : tensor<5x9xf32>
  }
  func.func private @dynamic_index_in_dim_6(%arg0: tensor<4x12x12xf16>, %arg1: tensor<i32>) -> tensor<12x12xf16> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c, sizes = [1, 12, 12] : (tensor<4x12x12xf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x12x12xf16>
    %1 = stablehlo.reshape %0 : (tensor<1x12x12xf16>) -> tensor<12x12xf16>
    return %1 : tensor<12x12xf16>
  }
  func.func private @dynamic_update_index_in_dim_7(%arg0: tensor<4x2x12xf16>, %arg1: tensor<2x12xf16>, %arg2: tensor<i32>) -> tensor<4x2x12xf16> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<2x12xf16>) -> tensor<1x2x12xf16>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c : (tensor<4x2x12xf16>, tensor<1x2x12xf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x12xf16>
    return %1 : tensor<4x2x12xf16>
  }
}
