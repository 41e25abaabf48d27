// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// espalier::pipeline alone: the standard library is enough for it.
#include <espalier/pipeline/schedules/one_f_one_b.hpp>

#if defined(BOOST_HANA_HPP) || defined(BOOST_HANA_CONFIG_HPP) || defined(OMPI_MPI_H) || defined(ESPALIER_USE_MPI)
#error "espalier::pipeline brought more than plans"
#endif

int main() {}
