// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Collectives made for the network, in a program that knows nothing of tensors: mpirun -n 4 ./collectives

#include <espalier/comm.hpp>

#include <cstdio>
#include <vector>

namespace ec = espalier::comm;

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    const ec::topology machine = ec::probe(MPI_COMM_WORLD);  // once, collective; or ec::load_topology("machine.json")
    ec::collectives all(MPI_COMM_WORLD, machine);            // collective

    const ec::element sums = ec::element_of(espalier::dtype::f32, espalier::reduction::sum);
    std::vector<float> gradients(1 << 20, 1.0F);
    const auto count = static_cast<std::int64_t>(gradients.size());
    all.all_reduce(gradients.data(), gradients.data(), count, sums);  // in place
    all.broadcast(gradients.data(), count, sums, 0);                  // from rank 0

    const bool right = gradients.front() == static_cast<float>(all.size()) && gradients.back() == gradients.front();
    if (all.rank() == 0) std::printf(right ? "every element is the number of ranks\n" : "WRONG SUMS\n");
  }
  MPI_Finalize();
}
