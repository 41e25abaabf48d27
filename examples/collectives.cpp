// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Collectives made for the network, in a program that knows nothing of tensors: mpirun -n 4 ./collectives

#include <espalier/comm.hpp>

#include <boost/mpi/environment.hpp>

#include <cstdio>
#include <functional>
#include <vector>

namespace ec = espalier::comm;

int main(int argc, char** argv) {
  const boost::mpi::environment environment(argc, argv);
  const boost::mpi::communicator world;

  const ec::topology machine = ec::probe(world);  // once, collective; or ec::load_topology("machine.json")
  ec::collectives all(world, machine);            // collective

  std::vector<float> gradients(1 << 20, 1.0F);
  ec::all_reduce(all, gradients, std::plus<>());  // in place
  ec::broadcast(all, gradients, 0);               // from rank 0

  const bool right = gradients.front() == static_cast<float>(all.size()) && gradients.back() == gradients.front();
  if (all.rank() == 0) std::printf(right ? "every element is the number of ranks\n" : "WRONG SUMS\n");
}
