// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why code for one shard (program/manual.hpp) does not compile; see diagnostics/reasons.hpp. They are not
/// among ops/reasons.hpp, since only programs with such code have them.
namespace espalier::why {

// The call of a region.
template <class... Details> struct manual_axis_not_in_mesh {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "manual: the mesh of this program has no such axis, or only as several parts. Name axes of the mesh; of "
        "joined meshes, axes that no other of them divides or counts in another order.");
  };
};
template <class... Details> struct manual_axis_named_twice {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: an axis is named twice, in manual<...>, in a collective, or in the dims<...> of one tensor. "
                  "An axis splits one dimension only: name it once.");
  };
};
template <class... Details> struct axis_is_manual_already {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: the code around this region is by hand along this axis already, so that a shard cannot be "
                  "cut along it once more. Name axes that are still automatic there.");
  };
};
template <class... Details> struct manual_operands_do_not_fit {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: in_specs<...> needs one dims<...> for each operand of the call. dims<> is a tensor that all "
                  "devices have whole.");
  };
};
template <class... Details> struct manual_results_do_not_fit {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: out_specs<...> needs one dims<...> for each tensor that the function returns. dims<> is one "
                  "that is the same on all devices.");
  };
};
template <class... Details> struct manual_operand_is_no_tensor {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: operands are tensors, and parameter trees. Of a number, constant<f32<>>(x, number) makes a "
                  "tensor, for any tensor x.");
  };
};
template <class... Details> struct manual_result_is_no_tensor {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: the function must return tensors of the region: one, or results(...) of several, which "
                  "follow from its parameters.");
  };
};
template <class... Details> struct manual_function_not_callable {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: the function cannot be called with these shards. It has one parameter for each operand: "
                  "take them as auto. Where the compiler found an error in it before, mend that one first.");
  };
};
template <class... Details> struct spec_is_no_dims {
  template <class Where> struct raise {
    static_assert(Where::ok, "manual: in_specs<...> and out_specs<...> hold dims<...>, one for each tensor.");
  };
};
template <class... Details> struct spec_of_wrong_rank {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "manual: dims<...> has more entries than the tensor has dimensions. Inside of the region a tensor has "
        "as many dimensions as outside.");
  };
};
template <class... Details> struct spec_names_automatic_axis {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: dims<...> names an axis that is not by hand in this region. Add it to manual<...>; or leave "
                  "it out here, and the compiler splits along it as it does elsewhere.");
  };
};
template <class... Details> struct tree_is_cut_along_its_stack_only {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "manual: the leaves of a parameter tree have one dims<...>: dims<>, or of a stack of layers, "
        "tree<stacked<spec, 12>>, the axis of these, dims<stage>. To cut leaves otherwise, hand them in one by "
        "one.");
  };
};
template <class... Details> struct shards_are_not_equal {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: this dimension is not a multiple of the number of devices along its axes, and code for one "
                  "shard needs shards of one shape. Pad the tensor before, and cut the result after.");
  };
};

// What leaves a region.
template <class... Details> struct result_is_not_invariant {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: out_specs promises a result that is the same on all devices along this axis, and it is "
                  "varying: each device may have another one. Add it up (psum), take pmax or pmin, or put it together "
                  "(all_gather); or name the axis in the dims<...> of the result, and the shards are joined.");
  };
};
template <class... Details> struct partial_leaves_region {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: this result is a partial along this axis: each device has a term of a sum, and nothing has "
                  "added these up. Return psum<axis>(x), or psum_scatter<axis, dim>(x) for a shard of the sum.");
  };
};

// Collectives.
template <class... Details> struct outside_of_manual_code {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "spmd: functions of one shard are for tensors inside of manual<axes...>(f). Elsewhere a tensor is "
                  "whole, and the compiler communicates.");
  };
};
template <class... Details> struct axis_is_not_manual {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "spmd: along this axis the region is automatic: its shards are not cut along it, and the compiler "
                  "communicates. Add the axis to manual<...> to do so by hand.");
  };
};
template <class... Details> struct no_axis_named {
  template <class Where> struct raise {
    static_assert(Where::ok, "manual, spmd: name the axes: manual<model>(f, ...), psum<model>(x).");
  };
};
template <class... Details> struct same_on_all_devices {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "spmd: the operand is invariant along this axis, the same on all devices, so that there is nothing to "
        "add up, put together or exchange: a sum would count it once for each device. Leave the call out; or "
        "say pvary<axis>(x) first if each device's copy is meant to count.");
  };
};
template <class... Details> struct partial_is_not_added_up {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "spmd: the operand is a partial along this axis, one term of a sum on each device: only psum and "
                  "psum_scatter read one. Add it up first.");
  };
};
template <class... Details> struct already_varying {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "spmd: the operand varies along this axis already, or is a partial: pvary is for what is invariant. "
                  "Leave the call out.");
  };
};
template <class... Details> struct already_partial {
  template <class Where> struct raise {
    static_assert(Where::ok, "spmd: the operand is a partial along this axis already. Leave the call out.");
  };
};
template <class... Details> struct shards_do_not_divide {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "spmd: this dimension of the shard is not a multiple of the number of devices along the axis, so that "
        "it cannot be cut into one equal piece for each. Choose another dimension, or pad it.");
  };
};
template <class... Details> struct devices_are_no_permutation {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "spmd: permute takes pairs from<source, destination> of devices along the axis, counted from 0: each "
                  "device sends at most once and receives at most once.");
  };
};
template <class... Details> struct no_such_device {
  template <class Where> struct raise {
    static_assert(Where::ok, "spmd: there is no device of this number along the axis. They count from 0.");
  };
};

// Ordinary operators in a region.
template <class... Details> struct partial_in_nonlinear_op {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: this operator reads a partial, one term of a sum on each device, and is not linear in it: "
                  "of terms it does not give terms of the result. Add up first: psum<axis>(x).");
  };
};
template <class... Details> struct product_of_partials {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "manual: this operator multiplies two partials along one axis: the product of two sums is not the sum "
        "of products of their terms. Add up one of the two first: psum<axis>(x).");
  };
};
template <class... Details> struct partial_meets_whole {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "manual: this operator adds a partial to what is not one along this axis, which would then count once "
        "for each device. Add up the partial first, psum<axis>(x); or make a partial of the other, "
        "as_partial<axis>, if each device's value is a term.");
  };
};
template <class... Details> struct tensor_of_code_around {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "manual: a tensor of the code around a region is used inside of it, where tensors are shards. Make it "
        "an operand of the region: dims<> hands it in whole.");
  };
};
template <class... Details> struct laid_out_along_manual_axis {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "shard, reshard: inside of this region the axis is manual: tensors are shards along it already. A "
                  "layout there may name automatic axes only.");
  };
};
template <class... Details> struct decision_varies {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: what decides about a branch or a loop varies along this axis: devices would part ways, and "
                  "those that communicate would wait for the others for ever. Decide on an invariant value, such as "
                  "pmax<axis>(x); or compute both branches, and select(condition, yes, no).");
  };
};
template <class... Details> struct not_for_shards {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "manual: this operator has no place for one more dimension, which what varies along this axis "
                  "needs: its factors do not let one pass. Say in the operator's op_info how it is mapped "
                  "(docs/adding-an-op.md), or call it outside of the region.");
  };
};
template <class... Details> struct too_many_dimensions_by_hand {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "manual: a tensor may have at most eight dimensions, and inside of a region one of these for each axis "
        "along which it varies. Merge dimensions (reshape), or name fewer axes.");
  };
};

}  // namespace espalier::why
