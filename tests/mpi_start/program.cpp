// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
//
// How worlds begin and end under an MPI launcher: in a program of its own, since each begins MPI itself.
//   worlds         several, one after the other and at the same time
//   stopped N      rank N stops before its first world: the job must end, and say so
//   late N         rank N never makes its second world
//   inside N       rank N stops inside MPI_Init
//   leaves N       rank N exits in the middle of a world, without a word
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/guard.hpp>
#include <espalier/tensor/run/execute/together.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

namespace {

namespace ep = espalier;

ep::mesh_shape all_ranks() {
  ep::mesh_shape mesh;
  mesh.rank = 1;
  mesh.size[0] = ep::comm::launcher_size();
  mesh.name[0] = "data";
  return mesh;
}

/// Every rank's number reaches every rank.
void use(ep::world& where) {
  const auto values = ep::detail::values_of_all_processes(where, 10 + where.device(0));
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] != 10 + static_cast<std::int64_t>(rank)) throw std::runtime_error("a wrong number arrived");
  }
}

/// Looks when everything else has been destroyed.
struct check_the_end {
  bool wanted = false;
  ~check_the_end() {
    int finalised = 0;
    if (wanted) MPI_Finalized(&finalised);
    if (wanted && finalised == 0) std::fputs("MPI was not finalised\n", stderr);
  }
};
check_the_end at_the_end;
/// Destroyed when the process exits.
std::unique_ptr<ep::world> last;

void several_worlds(int& argc, char**& argv) {
  {
    ep::world first(argc, argv, all_ranks());
    use(first);
  }
  ep::world second(argc, argv, all_ranks());
  use(second);
  {
    ep::world third(argc, argv, all_ranks());
    use(third);
    use(second);
    use(third);
  }
  use(second);

  // The same mesh, but all of it in this process.
  ep::world alone(all_ranks());
  const ep::sharded_array<ep::f32<8>> elsewhere(alone, ep::sharding::whole(1));
  std::string refusal;
  try {
    (void)ep::gather(second, elsewhere);
  } catch (const ep::argument_error& error) { refusal = error.what(); }
  if ((refusal.find(", of which this process has device ") == std::string::npos) != (alone.local_devices() == 1)) {
    throw std::runtime_error("an array of another world: " + refusal);
  }

  ep::mesh_shape wrong = all_ranks();
  wrong.size[0] += 1;
  std::string text;
  try {
    const ep::world refused(argc, argv, wrong);
  } catch (const ep::launch_error& error) { text = error.what(); }
  if (text.find("ranks were started") == std::string::npos) throw std::runtime_error("a wrong mesh was accepted");
  try {
    ep::world failing(argc, argv, all_ranks());
    use(failing);
    throw std::out_of_range("caught");
  } catch (const std::out_of_range&) { use(second); }
  last = std::make_unique<ep::world>(argc, argv, all_ranks());
  use(*last);

  at_the_end.wanted = true;
  if (second.is_root()) std::puts("all worlds were right");
}

void wait_for_ever() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

int run(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const bool odd_one = argc > 2 && ep::comm::launcher_rank() == std::atoi(argv[2]);
  if (what == "worlds") {
    several_worlds(argc, argv);
  } else if (what == "stopped") {
    if (odd_one) std::raise(SIGSTOP);
    ep::world world(argc, argv, all_ranks());
  } else if (what == "inside") {
    // A rank that does not come keeps the others inside. One of them is stopped there.
    if (ep::comm::launcher_rank() == 0) wait_for_ever();
    std::thread stopper;
    if (odd_one) {
      stopper = std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        ::kill(::getpid(), SIGSTOP);
      });
    }
    ep::world world(argc, argv, all_ranks());
    stopper.join();
  } else if (what == "late") {
    ep::world first(argc, argv, all_ranks());
    use(first);
    if (odd_one) wait_for_ever();
    ep::world second(argc, argv, all_ranks());
  } else if (what == "leaves") {
    ep::world world(argc, argv, all_ranks());
    if (odd_one) std::exit(3);
    use(world);
  } else {
    std::fputs("see the first lines of this program's source\n", stderr);
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] { return run(argc, argv); });
}
