module @jit_forward attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["devices"=8]> {stablehlo.mesh = {axes = [{name = "devices", size = 8 : i64}]}}
  sdy.mesh @mesh_0 = <["devices"=8]> {stablehlo.mesh = {axes = [{name = "devices", size = 8 : i64}]}}
  func.func public @main(%arg0: tensor<16x24xf32>, %arg1: tensor<24x16xf32>, %arg2: tensor<56x16xf32>, %arg3: tensor<8x32xf32>, %arg4: tensor<32x8xf32>, %arg5: tensor<64x8xf32>, %arg6: tensor<24x8xf16>, %arg7: tensor<8x24xf16>, %arg8: tensor<16x24xf16>) -> (tensor<56x16xf32> {jax.result_info = "result[0][0][0]"}, tensor<16x24xf32> {jax.result_info = "result[0][1][0]"}, tensor<24x16xf32> {jax.result_info = "result[0][1][1]"}, tensor<56x16xf32> {jax.result_info = "result[0][1][2]"}, tensor<56x24xf32> {jax.result_info = "result[0][1][3]"}, tensor<64x8xf32> {jax.result_info = "result[1][0][0]"}, tensor<8x32xf32> {jax.result_info = "result[1][1][0]"}, tensor<32x8xf32> {jax.result_info = "result[1][1][1]"}, tensor<64x8xf32> {jax.result_info = "result[1][1][2]"}, tensor<64x32xf32> {jax.result_info = "result[1][1][3]"}, tensor<16x24xf16> {jax.result_info = "result[2][0][0]"}, tensor<24x8xf16> {jax.result_info = "result[2][1][0]"}, tensor<8x24xf16> {jax.result_info = "result[2][1][1]"}, tensor<16x24xf16> {jax.result_info = "result[2][1][2]"}, tensor<16x8xf16> {jax.result_info = "result[2][1][3]"}, tensor<16x24xf16> {jax.result_info = "result[2][2][0]"}) {
    %0:2 = sdy.manual_computation(%arg6, %arg7, %arg8) in_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] out_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] manual_axes={"devices"} (%arg9: tensor<3x8xf16>, %arg10: tensor<1x24xf16>, %arg11: tensor<2x24xf16>) {
      %4 = "stablehlo.all_gather"(%arg9) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<3x8xf16>) -> tensor<24x8xf16>
      %5 = stablehlo.dot_general %arg11, %4, contracting_dims = [1] x [0] : (tensor<2x24xf16>, tensor<24x8xf16>) -> tensor<2x8xf16>
      %6 = stablehlo.reduce_precision %5, format = e5m10 : tensor<2x8xf16>
      %7 = stablehlo.sine %6 : tensor<2x8xf16>
      %8 = "stablehlo.all_gather"(%arg10) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<1x24xf16>) -> tensor<8x24xf16>
      %9 = stablehlo.dot_general %7, %8, contracting_dims = [1] x [0] : (tensor<2x8xf16>, tensor<8x24xf16>) -> tensor<2x24xf16>
      %10 = stablehlo.add %arg11, %9 : tensor<2x24xf16>
      sdy.return %10, %6 : tensor<2x24xf16>, tensor<2x8xf16>
    } : (tensor<24x8xf16>, tensor<8x24xf16>, tensor<16x24xf16>) -> (tensor<16x24xf16>, tensor<16x8xf16>)
    %1:2 = sdy.manual_computation(%arg0, %arg1, %arg2) in_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] out_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] manual_axes={"devices"} (%arg9: tensor<2x24xf32>, %arg10: tensor<3x16xf32>, %arg11: tensor<7x16xf32>) {
      %4 = "stablehlo.all_gather"(%arg9) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<2x24xf32>) -> tensor<16x24xf32>
      %5 = stablehlo.dot_general %arg11, %4, contracting_dims = [1] x [0] : (tensor<7x16xf32>, tensor<16x24xf32>) -> tensor<7x24xf32>
      %6 = stablehlo.reduce_precision %5, format = e8m23 : tensor<7x24xf32>
      %7 = stablehlo.sine %6 : tensor<7x24xf32>
      %8 = "stablehlo.all_gather"(%arg10) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<3x16xf32>) -> tensor<24x16xf32>
      %9 = stablehlo.dot_general %7, %8, contracting_dims = [1] x [0] : (tensor<7x24xf32>, tensor<24x16xf32>) -> tensor<7x16xf32>
      %10 = stablehlo.add %arg11, %9 : tensor<7x16xf32>
      sdy.return %10, %6 : tensor<7x16xf32>, tensor<7x24xf32>
    } : (tensor<16x24xf32>, tensor<24x16xf32>, tensor<56x16xf32>) -> (tensor<56x16xf32>, tensor<56x24xf32>)
    %2:2 = call @"<lambda>"(%arg3, %arg4, %arg5) : (tensor<8x32xf32>, tensor<32x8xf32>, tensor<64x8xf32>) -> (tensor<64x8xf32>, tensor<64x32xf32>)
    %3 = sdy.manual_computation(%arg6, %arg7, %arg8) in_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] out_shardings=[<@mesh, [{"devices"}, {}]>] manual_axes={"devices"} (%arg9: tensor<3x8xf16>, %arg10: tensor<1x24xf16>, %arg11: tensor<2x24xf16>) {
      %4 = "stablehlo.all_gather"(%arg9) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<3x8xf16>) -> tensor<24x8xf16>
      %5 = stablehlo.dot_general %arg11, %4, contracting_dims = [1] x [0] : (tensor<2x24xf16>, tensor<24x8xf16>) -> tensor<2x8xf16>
      %6 = stablehlo.sine %5 : tensor<2x8xf16>
      %7 = "stablehlo.all_gather"(%arg10) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<1x24xf16>) -> tensor<8x24xf16>
      %8 = stablehlo.dot_general %6, %7, contracting_dims = [1] x [0] : (tensor<2x8xf16>, tensor<8x24xf16>) -> tensor<2x24xf16>
      %9 = stablehlo.add %arg11, %8 : tensor<2x24xf16>
      sdy.return %9 : tensor<2x24xf16>
    } : (tensor<24x8xf16>, tensor<8x24xf16>, tensor<16x24xf16>) -> tensor<16x24xf16>
    return %1#0, %arg0, %arg1, %arg2, %1#1, %2#0, %arg3, %arg4, %arg5, %2#1, %0#0, %arg6, %arg7, %arg8, %0#1, %3 : tensor<56x16xf32>, tensor<16x24xf32>, tensor<24x16xf32>, tensor<56x16xf32>, tensor<56x24xf32>, tensor<64x8xf32>, tensor<8x32xf32>, tensor<32x8xf32>, tensor<64x8xf32>, tensor<64x32xf32>, tensor<16x24xf16>, tensor<24x8xf16>, tensor<8x24xf16>, tensor<16x24xf16>, tensor<16x8xf16>, tensor<16x24xf16>
  }
  func.func private @"<lambda>"(%arg0: tensor<8x32xf32>, %arg1: tensor<32x8xf32>, %arg2: tensor<64x8xf32>) -> (tensor<64x8xf32>, tensor<64x32xf32>) {
    %0:2 = sdy.manual_computation(%arg0, %arg1, %arg2) in_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] out_shardings=[<@mesh, [{"devices"}, {}]>, <@mesh, [{"devices"}, {}]>] manual_axes={"devices"} (%arg3: tensor<1x32xf32>, %arg4: tensor<4x8xf32>, %arg5: tensor<8x8xf32>) {
      %1 = "stablehlo.all_gather"(%arg3) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<1x32xf32>) -> tensor<8x32xf32>
      %2 = stablehlo.dot_general %arg5, %1, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
      %3 = stablehlo.reduce_precision %2, format = e8m23 : tensor<8x32xf32>
      %4 = stablehlo.sine %3 : tensor<8x32xf32>
      %5 = "stablehlo.all_gather"(%arg4) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh_0, axes = [#stablehlo.axis_ref<name = "devices">]>, use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
      %6 = stablehlo.dot_general %4, %5, contracting_dims = [1] x [0] : (tensor<8x32xf32>, tensor<32x8xf32>) -> tensor<8x8xf32>
      %7 = stablehlo.add %arg5, %6 : tensor<8x8xf32>
      sdy.return %7, %3 : tensor<8x8xf32>, tensor<8x32xf32>
    } : (tensor<8x32xf32>, tensor<32x8xf32>, tensor<64x8xf32>) -> (tensor<64x8xf32>, tensor<64x32xf32>)
    return %0#0, %0#1 : tensor<64x8xf32>, tensor<64x32xf32>
  }
}
