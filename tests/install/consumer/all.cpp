// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
//
// Every component's dependencies arrive with its target: one call into each.
#if __has_include(<espalier/espalier.hpp>)
#include <espalier/espalier.hpp>
#endif
#include <espalier/config.hpp>

#include <boost/hana/tuple.hpp>
#include <boost/mpi/communicator.hpp>
#include <boost/mpi/environment.hpp>
#include <xtensor/xtensor.hpp>
#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(ESPALIER_USE_CBLAS)
#include <cblas.h>
#endif

#include <cstdio>

int main(int argc, char** argv) {
  const boost::mpi::environment environment(argc, argv, boost::mpi::threading::serialized);
  const boost::mpi::communicator world;
  const xt::xtensor<float, 1> values = {3.0F, 4.0F};
  float product = values(0) * values(0) + values(1) * values(1);
#if defined(ESPALIER_USE_CBLAS)
  product = cblas_sdot(2, values.data(), 1, values.data(), 1);
#endif
  int threads = 1;
#if defined(_OPENMP)
  threads = omp_get_max_threads();
#endif
  std::printf("rank %d of %d, %d threads, product %g\n", world.rank(), world.size(), threads,
              static_cast<double>(product));
  return product == 25.0F ? 0 : 1;
}
