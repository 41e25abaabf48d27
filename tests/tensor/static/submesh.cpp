// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/pipeline/stages/model/named.hpp>
#include <espalier/tensor/core/sharding/annotation.hpp>

#include <type_traits>

/// A mesh among others: axes of the others may be named, and split nothing.
namespace ep = espalier;
namespace pl = espalier::pipeline;

namespace {

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 4> {};
struct stage : ep::axis<"stage", 2> {};

using part = ep::submesh<ep::mesh<model>, data>;
static_assert(part::devices == 4 && part::rank == 1);

template <class Mesh, class... Entries> constexpr ep::detail::annotation_fault fault_of() {
  return ep::detail::annotation_of<Mesh, Entries...>(2).fault;
}
using fault = ep::detail::annotation_fault;
static_assert(fault_of<part, data, model>() == fault::nothing);
static_assert(fault_of<part, stage, model>() == fault::unknown_axis);
static_assert(fault_of<ep::mesh<model>, data, model>() == fault::unknown_axis);
static_assert(fault_of<part, model, model>() == fault::axis_used_twice);

template <class... Entries> constexpr ep::sharding placed() {
  return ep::detail::annotation_of<part, Entries...>(2).placement;
}
static_assert(placed<data, model>().dim[0].empty() && placed<data, model>().dim[1] == ep::axis_list(0));
static_assert(placed<ep::axes<data, model>, ep::none>().dim[0] == ep::axis_list(0));
static_assert(placed<ep::none, ep::none, ep::replicated<data>>().replicated == 0);

// Meshes of a list know each other's axes; one alone stays as it is.
using list = pl::meshes<ep::mesh<>, ep::mesh<model>, ep::mesh<data, model>>;
static_assert(std::is_same_v<list::on<ep::mesh<>>, ep::submesh<ep::mesh<>, model, data>>);
static_assert(std::is_same_v<list::on<ep::mesh<model>>, part>);
static_assert(std::is_same_v<list::on<ep::mesh<data, model>>, ep::mesh<data, model>>);
static_assert(std::is_same_v<pl::meshes<ep::mesh<model>>::first, ep::mesh<model>>);
static_assert(list::find<ep::mesh<data, model>>() == 2);

}  // namespace
