// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The pictures of docs/concepts.md, docs/tutorial.md and docs/architecture.md, and the numbers beside them: `pictures
// FOLDER` writes them.
// The test docs/pictures compares them with docs/images.

#include <espalier/base/table.hpp>
#include <espalier/core.hpp>
#include <espalier/tensor/run/report/draw_layout.hpp>

#include <boost/hana/define_struct.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ep = espalier;
namespace report = espalier::report;

namespace {

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
struct three : ep::axis<"model", 3> {};
struct stage : ep::axis<"stage", 2> {};
using mesh = ep::mesh<data, model>;
using uneven_mesh = ep::mesh<data, three>;
using cube = ep::mesh<data, model, stage>;

void write(const std::filesystem::path& folder, const char* name, const std::string& text) {
  std::ofstream out(folder / name);
  out << text;
  if (!out.flush()) throw std::runtime_error("could not write " + (folder / name).string());
}

// ---------------------------------------------------------------------------------------------------------------------
// Completion, sweep by sweep.

struct mlp {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    auto h = ep::relu(ep::einsum<"bm,mh->bh">(x, w_in));
    h = ep::shard<data, model>(h);
    return ep::einsum<"bh,hm->bm">(h, w_out);
  }
};
using mlp_step = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<256, 1024>, ep::f32<1024, 256>>;

/// `[64@data, ?]`: a question mark for what nothing is known of yet.
std::string known_layout(const ep::extents& shape, const ep::sharding& of) {
  std::string text = "[";
  for (int d = 0; d < shape.rank; ++d) {
    text += d == 0 ? "" : ", ";
    if (of.dim[d].empty() && of.is_open(d)) {
      text += "?";
      continue;
    }
    text += std::to_string(shape[d]);
    for (int n = 0; n < of.dim[d].size(); ++n)
      text += (n == 0 ? "@" : "*") + std::string(mesh::value.name[of.dim[d][n]]);
  }
  return text + "]";
}

struct sweep_column {
  std::string title;
  std::vector<std::string> cells;
};

/// The states of completion, by the compiler's own sweeps, as far as they differ.
template <class Completed> std::vector<sweep_column> list_sweeps() {
  const ep::graph_view g = Completed::program;
  auto state = ep::detail::started_completion(g, Completed::readers);
  const ep::completion_view arrays = ep::detail::view_of(state, Completed::readers);
  std::vector<sweep_column> columns;
  const auto add_column = [&] {
    sweep_column column;
    for (int id = 0; id < g.size; ++id) column.cells.push_back(known_layout(g[id].shape, state.of[id]));
    if (!columns.empty() && columns.back().cells == column.cells) return;
    column.title = columns.empty() ? "annotations" : "sweep " + std::to_string(columns.size());
    columns.push_back(column);
  };
  add_column();
  for (int level = 0; level <= ep::detail::last_level; ++level) {
    while (ep::sweep_completion(mesh::value, g, &Completed::rules.of[0], arrays, level).changed) add_column();
  }
  return columns;
}

std::string svg_text(double x, double y, const std::string& words, const char* more = "") {
  return "<text x=\"" + report::format_fixed(x, 0) + "\" y=\"" + report::format_fixed(y, 0) + "\"" + more + ">" +
         ep::detail::xml_text(words) + "</text>\n";
}

std::string completion_picture() {
  using completed = mlp_step::completion_pass;
  const std::vector<sweep_column> columns = list_sweeps<completed>();
  const ep::graph_view g = completed::program;
  const auto rows = static_cast<std::size_t>(g.size);
  constexpr double first = 150;
  constexpr double width = 178;
  constexpr double row_height = 26;
  const double page_width = first + width * static_cast<double>(columns.size()) + 10;
  const double page_height = 40 + row_height * static_cast<double>(rows) + 10;
  const std::string size =
      "width=\"" + report::format_fixed(page_width, 0) + "\" height=\"" + report::format_fixed(page_height, 0) + "\"";
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" " + size + " viewBox=\"0 0 " +
                    report::format_fixed(page_width, 0) + " " + report::format_fixed(page_height, 0) +
                    "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">\n<title>Completion of a network "
                    "of two layers, sweep by sweep</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  const char* const bold = " font-weight=\"bold\"";
  for (std::size_t c = 0; c < columns.size(); ++c)
    out += svg_text(first + width * static_cast<double>(c), 24, columns[c].title, bold);
  for (std::size_t r = 0; r < rows; ++r) {
    const double y = 40 + row_height * static_cast<double>(r);
    const ep::instruction& i = g[static_cast<int>(r)];
    std::string name = i.op->name;
    if (ep::structure_of(i) == ep::structure::argument)
      name += " " + std::to_string(ep::attributes_of<ep::border_attributes>(i).number);
    out += svg_text(10, y + 17, name);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::string& words = columns[c].cells[r];
      const bool is_new = c == 0 ? words.find('@') != std::string::npos : words != columns[c - 1].cells[r];
      const double x = first + width * static_cast<double>(c);
      if (is_new) {
        out += "<rect x=\"" + report::format_fixed(x - 5, 0) + "\" y=\"" + report::format_fixed(y, 0) +
               "\" width=\"168\" height=\"23\" rx=\"3\" fill=\"" + (c == 0 ? "#fdd49e" : "#b2df8a") + "\"/>\n";
      }
      out += svg_text(x, y + 17, words, words.find('?') != std::string::npos && !is_new ? " fill=\"#999999\"" : "");
    }
  }
  return out + "</svg>\n";
}

// ---------------------------------------------------------------------------------------------------------------------
// What loops, recomputation and donation cost.

struct layer {
  constexpr auto operator()(auto h, auto weight) const {
    return ep::tanh(ep::matmul(ep::tanh(ep::matmul(h, weight)), weight));
  }
};
struct kept {
  constexpr auto operator()(auto weights, auto x) const { return ep::sum(ep::scan(layer{}, x, weights)); }
};
struct recomputed {
  constexpr auto operator()(auto weights, auto x) const {
    return ep::sum(ep::scan(layer{}, x, weights, ep::recompute));
  }
};
template <class Loss> struct train {
  constexpr auto operator()(auto weights, auto x) const {
    const auto [loss, gradient] = ep::value_and_grad(Loss{})(weights, x);
    return ep::results(weights - gradient * 0.01, loss);
  }
};
using weights = ep::f32<24, 128, 128>;
using batch = ep::f32<512, 128>;
template <class Loss, class Weights> using training = ep::program<mesh, train<Loss>, Weights, batch>;

template <class Program> void add_row(report::table& rows, const char* what) {
  rows.row(what, report::format_bytes(Program::argument_bytes()), report::format_bytes(Program::result_bytes()),
           report::format_bytes(Program::arena_bytes()), report::format_scaled(static_cast<double>(Program::flops())),
           report::format_bytes(Program::peak_bytes_per_device()));
}

std::string memory_table() {
  report::table rows(
      {{"a loop of 24 layers, trained"}, {"arguments"}, {"results"}, {"on the way"}, {"operations"}, {"together"}});
  add_row<training<kept, weights>>(rows, "scan");
  add_row<training<recomputed, weights>>(rows, "scan, recompute");
  add_row<training<kept, ep::donated<weights>>>(rows, "scan, weights donated");
  add_row<training<recomputed, ep::donated<weights>>>(rows, "scan, recompute, weights donated");
  std::ostringstream out;
  rows.print(out);
  return out.str();
}

// ---------------------------------------------------------------------------------------------------------------------
// A program on its way through the library: traced and completed, as a device has it, and with its places in memory.

/// `einsum %0, %1`
std::string call_of(ep::graph_view g, int id) {
  const ep::instruction& i = g[id];
  std::string text = i.op->name;
  if (ep::structure_of(i) == ep::structure::argument)
    text += " " + std::to_string(ep::attributes_of<ep::border_attributes>(i).number);
  for (int k = 0; k < i.operand_count; ++k) text += (k == 0 ? " %" : ", %") + std::to_string(g.operand_at(i, k));
  return text;
}

std::string whole_type(const ep::instruction& i) { return ep::to_string(mesh::value, i.type, i.shape, ep::sharding{}); }

template <class Program> std::string completed_table() {
  const ep::graph_view g = Program::traced;
  report::table rows({{"traced"}, {"type"}, {"layout after completion"}});
  for (int id = 0; id < g.size; ++id) {
    const ep::instruction& i = g[id];
    rows.row("%" + std::to_string(id) + " = " + call_of(g, id), whole_type(i),
             ep::to_string(mesh::value, i.type, i.shape, Program::completion_pass::value.of[id]));
  }
  std::ostringstream out;
  rows.print(out);
  return out.str();
}

std::string place_of(const ep::location& at) {
  switch (at.space) {
    case ep::memory_space::arena: return "arena + " + std::to_string(at.offset);
    case ep::memory_space::argument: return "argument " + std::to_string(at.index);
    case ep::memory_space::result: return "result " + std::to_string(at.index);
    case ep::memory_space::nowhere: break;
  }
  return "-";
}

template <class Program> std::string device_table() {
  const ep::graph_view g = Program::code;
  const ep::plan_view plan = Program::plan;
  report::table rows({{"on each device"}, {"buffer"}, {"bytes"}, {"place"}, {"step"}, {"sent"}});
  for (int id = 0; id < g.size; ++id) {
    const ep::instruction& i = g[id];
    const int launch = plan.launch_of[id];
    const std::int64_t sent = i.op->facts.moves < 0 ? 0 : Program::sent_bytes_of(id);
    rows.row("%" + std::to_string(id) + " = " + call_of(g, id), whole_type(i), ep::bytes_of(i),
             place_of(plan.where[id]), launch < 0 ? "-" : std::to_string(launch),
             sent == 0 ? "" : std::to_string(sent));
  }
  std::ostringstream out;
  rows.print(out);
  out << "arena: " << plan.arena_bytes << " bytes\n";
  return out.str();
}

void write_all(const std::filesystem::path& folder) {
  write(folder, "layout_uneven.svg", ep::draw_layout<uneven_mesh, ep::sharded<ep::f32<4, 10>, data, three>>());
  write(folder, "layout_both.svg", ep::draw_layout<mesh, ep::sharded<ep::f32<64, 256>, data, model>>());
  write(folder, "layout_copies.svg", ep::draw_layout<mesh, ep::sharded<ep::f32<64, 256>, data, ep::none>>());
  write(folder, "layout_pending.svg",
        ep::draw_layout<mesh, ep::sharded<ep::f32<64, 256>, data, ep::none, ep::unreduced<model>>>());
  write(folder, "layout_nested.svg", ep::draw_layout<mesh, ep::sharded<ep::f32<7>, ep::axes<data, model>>>());
  write(folder, "layout_nested_major.svg", ep::draw_layout<mesh, ep::sharded<ep::f32<7>, data>>());
  write(folder, "layout_idle.svg", ep::draw_layout<mesh, ep::sharded<ep::f32<5>, ep::axes<data, model>>>());
  write(folder, "layout_panels.svg", ep::draw_layout<cube, ep::sharded<ep::f32<6, 8, 10>, data, model, stage>>());
  write(folder, "completion.svg", completion_picture());
  write(folder, "memory.txt", memory_table());
  write(folder, "journey_layouts.txt", completed_table<mlp_step>());
  write(folder, "journey_device.txt", device_table<mlp_step>());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: pictures FOLDER\n";
    return 2;
  }
  try {
    write_all(argv[1]);
  } catch (const std::exception& e) {
    std::cerr << "pictures: " << e.what() << '\n';
    return 1;
  }
}
