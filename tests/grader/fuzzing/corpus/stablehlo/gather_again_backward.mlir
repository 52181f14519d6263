module @jit_backward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["devices"=8]> {stablehlo.mesh = {axes = [{name = "devices", size = 8 : i64}]}}
  sdy.mesh @mesh_0 = <["devices"=8]> {stablehlo.mesh = {axes = [{name = "devices", size = 8 : i64}]}}
  func.func public @main(%arg0: tensor<16x24xf32>, %arg1: tensor<24x16xf32>, %arg2: tensor<56x16xf32>, %arg3: tensor<56x24xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg4: tensor<8x32xf32>, %arg5: tensor<32x8xf32>, %arg6: tensor<64x8xf32>, %arg7: tensor<64x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg8: tensor<24x8xf16>, %arg9: tensor<8x24xf16>, %arg10: tensor<16x24xf16>, %arg11: tensor<16x8xf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg12: tensor<56x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg13: tensor<64x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg14: tensor<16x24xf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<16x24xf32> {jax.result_info = "result[0][0]"}, tensor<24x16xf32> {jax.result_info = "result[0][1]"}, tensor<56x16xf32> {jax.result_info = "result[0][2]"}, tensor<8x32xf32> {jax.result_info = "result[1][0]"}, tensor<32x8xf32> {jax.result_info = "result[1][1]"}, tensor<64x8xf32> {jax.result_info = "result[1][2]"}, tensor<24x8xf16> {jax.result_info = "result[2][0]"}, tensor<8x24xf16> {jax.result_info = "result[2][1]"}, tensor<16x24xf16> {jax.result_info = "result[2][2]"}) {
    %0:3 = sdy.manual_computation(%arg14, %arg11, %arg8, %arg9, %arg10) in_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] out_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] manual_axes={"devices"} (%arg15: tensor<2x24xf16>, %arg16: tensor<2x8xf16>, %arg17: tensor<3x8xf16>, %arg18: tensor<1x24xf16>, %arg19: tensor<2x24xf16>) {
      %3:5 = stablehlo.optimization_barrier %arg16, %arg17, %arg18, %arg19, %arg15 : tensor<2x8xf16>, tensor<3x8xf16>, tensor<1x24xf16>, tensor<2x24xf16>, tensor<2x24xf16>
      %4 = "stablehlo.all_gather"(%3#1) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<3x8xf16>) -> tensor<24x8xf16>
      %5 = stablehlo.sine %3#0 : tensor<2x8xf16>
      %6 = stablehlo.cosine %3#0 : tensor<2x8xf16>
      %7 = "stablehlo.all_gather"(%3#2) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<1x24xf16>) -> tensor<8x24xf16>
      %8 = stablehlo.dot_general %3#4, %5, contracting_dims = [0] x [0] : (tensor<2x24xf16>, tensor<2x8xf16>) -> tensor<24x8xf16>
      %9 = stablehlo.transpose %8, dims = [1, 0] : (tensor<24x8xf16>) -> tensor<8x24xf16>
      %10 = stablehlo.dot_general %3#4, %7, contracting_dims = [1] x [1] : (tensor<2x24xf16>, tensor<8x24xf16>) -> tensor<2x8xf16>
      %11 = "stablehlo.reduce_scatter"(%9) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
      ^bb0(%arg20: tensor<f16>, %arg21: tensor<f16>):
        %18 = stablehlo.add %arg20, %arg21 : tensor<f16>
        stablehlo.return %18 : tensor<f16>
      }) : (tensor<8x24xf16>) -> tensor<1x24xf16>
      %12 = stablehlo.multiply %10, %6 : tensor<2x8xf16>
      %13 = stablehlo.dot_general %12, %3#3, contracting_dims = [0] x [0] : (tensor<2x8xf16>, tensor<2x24xf16>) -> tensor<8x24xf16>
      %14 = stablehlo.transpose %13, dims = [1, 0] : (tensor<8x24xf16>) -> tensor<24x8xf16>
      %15 = stablehlo.dot_general %12, %4, contracting_dims = [1] x [1] : (tensor<2x8xf16>, tensor<24x8xf16>) -> tensor<2x24xf16>
      %16 = stablehlo.add %3#4, %15 : tensor<2x24xf16>
      %17 = "stablehlo.reduce_scatter"(%14) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
      ^bb0(%arg20: tensor<f16>, %arg21: tensor<f16>):
        %18 = stablehlo.add %arg20, %arg21 : tensor<f16>
        stablehlo.return %18 : tensor<f16>
      }) : (tensor<24x8xf16>) -> tensor<3x8xf16>
      sdy.return %17, %11, %16 : tensor<3x8xf16>, tensor<1x24xf16>, tensor<2x24xf16>
    } : (tensor<16x24xf16>, tensor<16x8xf16>, tensor<24x8xf16>, tensor<8x24xf16>, tensor<16x24xf16>) -> (tensor<24x8xf16>, tensor<8x24xf16>, tensor<16x24xf16>)
    %1:3 = sdy.manual_computation(%arg12, %arg3, %arg0, %arg1, %arg2) in_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] out_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] manual_axes={"devices"} (%arg15: tensor<7x16xf32>, %arg16: tensor<7x24xf32>, %arg17: tensor<2x24xf32>, %arg18: tensor<3x16xf32>, %arg19: tensor<7x16xf32>) {
      %3:5 = stablehlo.optimization_barrier %arg16, %arg17, %arg18, %arg19, %arg15 : tensor<7x24xf32>, tensor<2x24xf32>, tensor<3x16xf32>, tensor<7x16xf32>, tensor<7x16xf32>
      %4 = "stablehlo.all_gather"(%3#1) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<2x24xf32>) -> tensor<16x24xf32>
      %5 = stablehlo.sine %3#0 : tensor<7x24xf32>
      %6 = stablehlo.cosine %3#0 : tensor<7x24xf32>
      %7 = "stablehlo.all_gather"(%3#2) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<3x16xf32>) -> tensor<24x16xf32>
      %8 = stablehlo.dot_general %3#4, %5, contracting_dims = [0] x [0] : (tensor<7x16xf32>, tensor<7x24xf32>) -> tensor<16x24xf32>
      %9 = stablehlo.transpose %8, dims = [1, 0] : (tensor<16x24xf32>) -> tensor<24x16xf32>
      %10 = stablehlo.dot_general %3#4, %7, contracting_dims = [1] x [1] : (tensor<7x16xf32>, tensor<24x16xf32>) -> tensor<7x24xf32>
      %11 = "stablehlo.reduce_scatter"(%9) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
      ^bb0(%arg20: tensor<f32>, %arg21: tensor<f32>):
        %18 = stablehlo.add %arg20, %arg21 : tensor<f32>
        stablehlo.return %18 : tensor<f32>
      }) : (tensor<24x16xf32>) -> tensor<3x16xf32>
      %12 = stablehlo.multiply %10, %6 : tensor<7x24xf32>
      %13 = stablehlo.dot_general %12, %3#3, contracting_dims = [0] x [0] : (tensor<7x24xf32>, tensor<7x16xf32>) -> tensor<24x16xf32>
      %14 = stablehlo.transpose %13, dims = [1, 0] : (tensor<24x16xf32>) -> tensor<16x24xf32>
      %15 = stablehlo.dot_general %12, %4, contracting_dims = [1] x [1] : (tensor<7x24xf32>, tensor<16x24xf32>) -> tensor<7x16xf32>
      %16 = stablehlo.add %3#4, %15 : tensor<7x16xf32>
      %17 = "stablehlo.reduce_scatter"(%14) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
      ^bb0(%arg20: tensor<f32>, %arg21: tensor<f32>):
        %18 = stablehlo.add %arg20, %arg21 : tensor<f32>
        stablehlo.return %18 : tensor<f32>
      }) : (tensor<16x24xf32>) -> tensor<2x24xf32>
      sdy.return %17, %11, %16 : tensor<2x24xf32>, tensor<3x16xf32>, tensor<7x16xf32>
    } : (tensor<56x16xf32>, tensor<56x24xf32>, tensor<16x24xf32>, tensor<24x16xf32>, tensor<56x16xf32>) -> (tensor<16x24xf32>, tensor<24x16xf32>, tensor<56x16xf32>)
    %2:3 = call @"<lambda>"(%arg7, %arg4, %arg5, %arg6, %arg13) : (tensor<64x32xf32>, tensor<8x32xf32>, tensor<32x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>) -> (tensor<8x32xf32>, tensor<32x8xf32>, tensor<64x8xf32>)
    return %1#0, %1#1, %1#2, %2#0, %2#1, %2#2, %0#0, %0#1, %0#2 : tensor<16x24xf32>, tensor<24x16xf32>, tensor<56x16xf32>, tensor<8x32xf32>, tensor<32x8xf32>, tensor<64x8xf32>, tensor<24x8xf16>, tensor<8x24xf16>, tensor<16x24xf16>
  }
  func.func private @"<lambda>"(%arg0: tensor<64x32xf32>, %arg1: tensor<8x32xf32>, %arg2: tensor<32x8xf32>, %arg3: tensor<64x8xf32>, %arg4: tensor<64x8xf32>) -> (tensor<8x32xf32>, tensor<32x8xf32>, tensor<64x8xf32>) {
    %0:3 = sdy.manual_computation(%arg4, %arg0, %arg1, %arg2, %arg3) in_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] out_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] manual_axes={"devices"} (%arg5: tensor<8x8xf32>, %arg6: tensor<8x32xf32>, %arg7: tensor<1x32xf32>, %arg8: tensor<4x8xf32>, %arg9: tensor<8x8xf32>) {
      %1:5 = stablehlo.optimization_barrier %arg6, %arg7, %arg8, %arg9, %arg5 : tensor<8x32xf32>, tensor<1x32xf32>, tensor<4x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
      %2 = "stablehlo.all_gather"(%1#1) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<1x32xf32>) -> tensor<8x32xf32>
      %3 = stablehlo.sine %1#0 : tensor<8x32xf32>
      %4 = stablehlo.cosine %1#0 : tensor<8x32xf32>
      %5 = "stablehlo.all_gather"(%1#2) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
      %6 = stablehlo.dot_general %1#4, %3, contracting_dims = [0] x [0] : (tensor<8x8xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
      %7 = stablehlo.transpose %6, dims = [1, 0] : (tensor<8x32xf32>) -> tensor<32x8xf32>
      %8 = stablehlo.dot_general %1#4, %5, contracting_dims = [1] x [1] : (tensor<8x8xf32>, tensor<32x8xf32>) -> tensor<8x32xf32>
      %9 = "stablehlo.reduce_scatter"(%7) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
      ^bb0(%arg10: tensor<f32>, %arg11: tensor<f32>):
        %16 = stablehlo.add %arg10, %arg11 : tensor<f32>
        stablehlo.return %16 : tensor<f32>
      }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
      %10 = stablehlo.multiply %8, %4 : tensor<8x32xf32>
      %11 = stablehlo.dot_general %10, %1#3, contracting_dims = [0] x [0] : (tensor<8x32xf32>, tensor<8x8xf32>) -> tensor<32x8xf32>
      %12 = stablehlo.transpose %11, dims = [1, 0] : (tensor<32x8xf32>) -> tensor<8x32xf32>
      %13 = stablehlo.dot_general %10, %2, contracting_dims = [1] x [1] : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x8xf32>
      %14 = stablehlo.add %1#4, %13 : tensor<8x8xf32>
      %15 = "stablehlo.reduce_scatter"(%12) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
      ^bb0(%arg10: tensor<f32>, %arg11: tensor<f32>):
        %16 = stablehlo.add %arg10, %arg11 : tensor<f32>
        stablehlo.return %16 : tensor<f32>
      }) : (tensor<8x32xf32>) -> tensor<1x32xf32>
      sdy.return %15, %9, %14 : tensor<1x32xf32>, tensor<4x8xf32>, tensor<8x8xf32>
    } : (tensor<64x8xf32>, tensor<64x32xf32>, tensor<8x32xf32>, tensor<32x8xf32>, tensor<64x8xf32>) -> (tensor<8x32xf32>, tensor<32x8xf32>, tensor<64x8xf32>)
    return %0#0, %0#1, %0#2 : tensor<8x32xf32>, tensor<32x8xf32>, tensor<64x8xf32>
  }
}
