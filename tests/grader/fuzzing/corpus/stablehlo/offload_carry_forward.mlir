module @jit_forward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x9x9xf32>, %arg1: tensor<7x9xf32>, %arg2: tensor<19x12x12xf32>, %arg3: tensor<8x12xf32>, %arg4: tensor<2x3x3xf16>, %arg5: tensor<1x3xf16>, %arg6: tensor<32x6x6xf32>, %arg7: tensor<2x3x6xf32>) -> (tensor<7x9xf32> {jax.result_info = "result[0][0][0]", mhlo.memory_kind = "device"}, tensor<5x9x9xf32> {jax.result_info = "result[0][1][0]", mhlo.memory_kind = "device"}, tensor<5x7x9xf32> {jax.result_info = "result[0][1][1]", mhlo.memory_kind = "pinned_host"}, tensor<8x12xf32> {jax.result_info = "result[1][0][0]", mhlo.memory_kind = "device"}, tensor<19x12x12xf32> {jax.result_info = "result[1][1][0]", mhlo.memory_kind = "device"}, tensor<19x8x12xf32> {jax.result_info = "result[1][1][1]", mhlo.memory_kind = "pinned_host"}, tensor<1x3xf16> {jax.result_info = "result[2][0][0]", mhlo.memory_kind = "device"}, tensor<2x3x3xf16> {jax.result_info = "result[2][1][0]", mhlo.memory_kind = "device"}, tensor<2x1x3xf16> {jax.result_info = "result[2][1][1]", mhlo.memory_kind = "pinned_host"}, tensor<2x3x6xf32> {jax.result_info = "result[3][0][0]", mhlo.memory_kind = "device"}, tensor<32x6x6xf32> {jax.result_info = "result[3][1][0]", mhlo.memory_kind = "device"}, tensor<32x2x3x6xf32> {jax.result_info = "result[3][1][1]", mhlo.memory_kind = "pinned_host"}, tensor<2x3x6xf32> {jax.result_info = "result[3][2][0]", mhlo.memory_kind = "device"}) {
    %0:2 = call @net(%arg6, %arg7) : (tensor<32x6x6xf32>, tensor<2x3x6xf32>) -> (tensor<2x3x6xf32>, tensor<32x2x3x6xf32>)
    %1:2 = call @net_0(%arg0, %arg1) : (tensor<5x9x9xf32>, tensor<7x9xf32>) -> (tensor<7x9xf32>, tensor<5x7x9xf32>)
    %2:2 = call @net_3(%arg4, %arg5) : (tensor<2x3x3xf16>, tensor<1x3xf16>) -> (tensor<1x3xf16>, tensor<2x1x3xf16>)
    %3:2 = call @net_6(%arg2, %arg3) : (tensor<19x12x12xf32>, tensor<8x12xf32>) -> (tensor<8x12xf32>, tensor<19x8x12xf32>)
    %4 = call @net_10(%arg6, %arg7) : (tensor<32x6x6xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
    return %1#0, %arg0, %1#1, %3#0, %arg2, %3#1, %2#0, %arg4, %2#1, %0#0, %arg6, %0#1, %4 : tensor<7x9xf32>, tensor<5x9x9xf32>, tensor<5x7x9xf32>, tensor<8x12xf32>, tensor<19x12x12xf32>, tensor<19x8x12xf32>, tensor<1x3xf16>, tensor<2x3x3xf16>, tensor<2x1x3xf16>, tensor<2x3x6xf32>, tensor<32x6x6xf32>, tensor<32x2x3x6xf32>, tensor<2x3x6xf32>
  }
  func.func private @net(%arg0: tensor<32x6x6xf32>, %arg1: tensor<2x3x6xf32>) -> (tensor<2x3x6xf32>, tensor<32x2x3x6xf32>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<32> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<32x2x3x6xf32>
    %1:4 = stablehlo.while(%iterArg = %arg0, %iterArg_2 = %c_1, %iterArg_3 = %arg1, %iterArg_4 = %0) : tensor<32x6x6xf32>, tensor<i32>, tensor<2x3x6xf32>, tensor<32x2x3x6xf32>
    cond {
      %2 = stablehlo.compare LT, %iterArg_2, %c_0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_2) : (tensor<32x6x6xf32>, tensor<i32>) -> tensor<6x6xf32>
      %3 = stablehlo.sine %iterArg_3 : tensor<2x3x6xf32>
      %4 = stablehlo.dot_general %3, %2, contracting_dims = [2] x [0] : (tensor<2x3x6xf32>, tensor<6x6xf32>) -> tensor<2x3x6xf32>
      %5 = stablehlo.sine %4 : tensor<2x3x6xf32>
      %6 = stablehlo.add %iterArg_3, %5 : tensor<2x3x6xf32>
      %7 = func.call @dynamic_update_index_in_dim(%iterArg_4, %iterArg_3, %iterArg_2) : (tensor<32x2x3x6xf32>, tensor<2x3x6xf32>, tensor<i32>) -> tensor<32x2x3x6xf32>
      %8 = stablehlo.add %iterArg_2, %c : tensor<i32>
      stablehlo.return %iterArg, %8, %6, %7 : tensor<32x6x6xf32>, tensor<i32>, tensor<2x3x6xf32>, tensor<32x2x3x6xf32>
    }
    return %1#2, %1#3 : tensor<2x3x6xf32>, tensor<32x2x3x6xf32>
  }
  func.func private @dynamic_index_in_dim(%arg0: tensor<32x6x6xf32>, %arg1: tensor<i32>) -> tensor<6x6xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c, sizes = [1, 6, 6] : (tensor<32x6x6xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x6xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x6x6xf32>) -> tensor<6x6xf32>
    return %1 : tensor<6x6xf32>
  }
  func.func private @dynamic_update_index_in_dim(%arg0: tensor<32x2x3x6xf32>, %arg1: tensor<2x3x6xf32>, %arg2: tensor<i32>) -> tensor<32x2x3x6xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2, 3] : (tensor<2x3x6xf32>) -> tensor<1x2x3x6xf32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c, %c : (tensor<32x2x3x6xf32>, tensor<1x2x3x6xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<32x2x3x6xf32>
    return %1 : tensor<32x2x3x6xf32>
  }
  func.func private @net_0(%arg0: tensor<5x9x9xf32>, %arg1: tensor<7x9xf32>) -> (tensor<7x9xf32>, tensor<5x7x9xf32>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<5> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<5x7x9xf32>
    %1:4 = stablehlo.while(%iterArg = %arg0, %iterArg_2 = %c_1, %iterArg_3 = %arg1, %iterArg_4 = %0) : tensor<5x9x9xf32>, tensor<i32>, tensor<7x9xf32>, tensor<5x7x9xf32>
    cond {
      %2 = stablehlo.compare LT, %iterArg_2, %c_0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = func.call @dynamic_index_in_dim_1(%iterArg, %iterArg_2) : (tensor<5x9x9xf32>, tensor<i32>) -> tensor<9x9xf32>
      %3 = stablehlo.sine %iterArg_3 : tensor<7x9xf32>
      %4 = stablehlo.dot_general %3, %2, contracting_dims = [1] x [0] : (tensor<7x9xf32>, tensor<9x9xf32>) -> tensor<7x9xf32>
      %5 = stablehlo.sine %4 : tensor<7x9xf32>
      %6 = stablehlo.add %iterArg_3, %5 : tensor<7x9xf32>
      %7 = func.call @dynamic_update_index_in_dim_2(%iterArg_4, %iterArg_3, %iterArg_2) : (tensor<5x7x9xf32>, tensor<7x9xf32>, tensor<i32>) -> tensor<5x7x9xf32>
      %8 = stablehlo.add %iterArg_2, %c : tensor<i32>
      stablehlo.return %iterArg, %8, %6, %7 : tensor<5x9x9xf32>, tensor<i32>, tensor<7x9xf32>, tensor<5x7x9xf32>
    }
    return %1#2, %1#3 : tensor<7x9xf32>, tensor<5x7x9xf32>
  }
  func.func private @dynamic_index_in_dim_1(%arg0: tensor<5x9x9xf32>, %arg1: tensor<i32>) -> tensor<9x9xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c, sizes = [1, 9, 9] : (tensor<5x9x9xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x9x9xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x9x9xf32>) -> tensor<9x9xf32>
    return %1 : tensor<9x9xf32>
  }
  func.func private @dynamic_update_index_in_dim_2(%arg0: tensor<5x7x9xf32>, %arg1: tensor<7x9xf32>, %arg2: tensor<i32>) -> tensor<5x7x9xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<7x9xf32>) -> tensor<1x7x9xf32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c : (tensor<5x7x9xf32>, tensor<1x7x9xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<5x7x9xf32>
    return %1 : tensor<5x7x9xf32>
  }
  func.func private @net_3(%arg0: tensor<2x3x3xf16>, %arg1: tensor<1x3xf16>) -> (tensor<1x3xf16>, tensor<2x1x3xf16>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<2> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f16>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<2x1x3xf16>
    %1:4 = stablehlo.while(%iterArg = %arg0, %iterArg_2 = %c_1, %iterArg_3 = %arg1, %iterArg_4 = %0) : tensor<2x3x3xf16>, tensor<i32>, tensor<1x3xf16>, tensor<2x1x3xf16>
    cond {
      %2 = stablehlo.compare LT, %iterArg_2, %c_0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = func.call @dynamic_index_in_dim_4(%iterArg, %iterArg_2) : (tensor<2x3x3xf16>, tensor<i32>) -> tensor<3x3xf16>
      %3 = stablehlo.sine %iterArg_3 : tensor<1x3xf16>
      %4 = stablehlo.dot_general %3, %2, contracting_dims = [1] x [0] : (tensor<1x3xf16>, tensor<3x3xf16>) -> tensor<1x3xf16>
      %5 = stablehlo.sine %4 : tensor<1x3xf16>
      %6 = stablehlo.add %iterArg_3, %5 : tensor<1x3xf16>
      %7 = func.call @dynamic_update_index_in_dim_5(%iterArg_4, %iterArg_3, %iterArg_2) : (tensor<2x1x3xf16>, tensor<1x3xf16>, tensor<i32>) -> tensor<2x1x3xf16>
      %8 = stablehlo.add %iterArg_2, %c : tensor<i32>
      stablehlo.return %iterArg, %8, %6, %7 : tensor<2x3x3xf16>, tensor<i32>, tensor<1x3xf16>, tensor<2x1x3xf16>
    }
    return %1#2, %1#3 : tensor<1x3xf16>, tensor<2x1x3xf16>
  }
  func.func private @dynamic_index_in_dim_4(%arg0: tensor<2x3x3xf16>, %arg1: tensor<i32>) -> tensor<3x3xf16> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c, sizes = [1, 3, 3] : (tensor<2x3x3xf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x3x3xf16>
    %1 = stablehlo.reshape %0 : (tensor<1x3x3xf16>) -> tensor<3x3xf16>
    return %1 : tensor<3x3xf16>
  }
  func.func private @dynamic_update_index_in_dim_5(%arg0: tensor<2x1x3xf16>, %arg1: tensor<1x3xf16>, %arg2: tensor<i32>) -> tensor<2x1x3xf16> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<1x3xf16>) -> tensor<1x1x3xf16>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c : (tensor<2x1x3xf16>, tensor<1x1x3xf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x1x3xf16>
    return %1 : tensor<2x1x3xf16>
  }
  func.func private @net_6(%arg0: tensor<19x12x12xf32>, %arg1: tensor<8x12xf32>) -> (tensor<8x12xf32>, tensor<19x8x12xf32>) {
    %0:2 = call @net_7(%arg0, %arg1) : (tensor<19x12x12xf32>, tensor<8x12xf32>) -> (tensor<8x12xf32>, tensor<19x8x12xf32>)
    return %0#0, %0#1 : tensor<8x12xf32>, tensor<19x8x12xf32>
  }
  func.func private @net_7(%arg0: tensor<19x12x12xf32>, %arg1: tensor<8x12xf32>) -> (tensor<8x12xf32>, tensor<19x8x12xf32>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<19> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<19x8x12xf32>
    %1:4 = stablehlo.while(%iterArg = %arg0, %iterArg_2 = %c_1, %iterArg_3 = %arg1, %iterArg_4 = %0) : tensor<19x12x12xf32>, tensor<i32>, tensor<8x12xf32>, tensor<19x8x12xf32>
    cond {
      %2 = stablehlo.compare LT, %iterArg_2, %c_0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = func.call @dynamic_index_in_dim_8(%iterArg, %iterArg_2) : (tensor<19x12x12xf32>, tensor<i32>) -> tensor<12x12xf32>
      %3 = stablehlo.sine %iterArg_3 : tensor<8x12xf32>
      %4 = stablehlo.dot_general %3, %2, contracting_dims = [1] x [0] : (tensor<8x12xf32>, tensor<12x12xf32>) -> tensor<8x12xf32>
      %5 = stablehlo.sine %4 : tensor<8x12xf32>
      %6 = stablehlo.add %iterArg_3, %5 : tensor<8x12xf32>
      %7 = func.call @dynamic_update_index_in_dim_9(%iterArg_4, %iterArg_3, %iterArg_2) : (tensor<19x8x12xf32>, tensor<8x12xf32>, tensor<i32>) -> tensor<19x8x12xf32>
      %8 = stablehlo.add %iterArg_2, %c : tensor<i32>
      stablehlo.return %iterArg, %8, %6, %7 : tensor<19x12x12xf32>, tensor<i32>, tensor<8x12xf32>, tensor<19x8x12xf32>
    }
    return %1#2, %1#3 : tensor<8x12xf32>, tensor<19x8x12xf32>
  }
  func.func private @dynamic_index_in_dim_8(%arg0: tensor<19x12x12xf32>, %arg1: tensor<i32>) -> tensor<12x12xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c, sizes = [1, 12, 12] : (tensor<19x12x12xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x12x12xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x12x12xf32>) -> tensor<12x12xf32>
    return %1 : tensor<12x12xf32>
  }
  func.func private @dynamic_update_index_in_dim_9(%arg0: tensor<19x8x12xf32>, %arg1: tensor<8x12xf32>, %arg2: tensor<i32>) -> tensor<19x8x12xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<8x12xf32>) -> tensor<1x8x12xf32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c : (tensor<19x8x12xf32>, tensor<1x8x12xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<19x8x12xf32>
    return %1 : tensor<19x8x12xf32>
  }
  func.func private @net_10(%arg0: tensor<32x6x6xf32>, %arg1: tensor<2x3x6xf32>) -> tensor<2x3x6xf32> {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<32> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%iterArg = %arg0, %iterArg_2 = %c_1, %iterArg_3 = %arg1) : tensor<32x6x6xf32>, tensor<i32>, tensor<2x3x6xf32>
    cond {
      %1 = stablehlo.compare LT, %iterArg_2, %c_0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_2) : (tensor<32x6x6xf32>, tensor<i32>) -> tensor<6x6xf32>
      %2 = stablehlo.sine %iterArg_3 : tensor<2x3x6xf32>
      %3 = stablehlo.dot_general %2, %1, contracting_dims = [2] x [0] : (tensor<2x3x6xf32>, tensor<6x6xf32>) -> tensor<2x3x6xf32>
      %4 = stablehlo.sine %3 : tensor<2x3x6xf32>
      %5 = stablehlo.add %iterArg_3, %4 : tensor<2x3x6xf32>
      %6 = stablehlo.add %iterArg_2, %c : tensor<i32>
      stablehlo.return %iterArg, %6, %5 : tensor<32x6x6xf32>, tensor<i32>, tensor<2x3x6xf32>
    }
    return %0#2 : tensor<2x3x6xf32>
  }
}
