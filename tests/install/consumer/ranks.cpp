// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// espalier::comm alone: communicators without tensors.
#include <espalier/comm/session.hpp>

#if !defined(ESPALIER_USE_MPI)
#error "espalier::comm did not say that there is MPI"
#endif
#if defined(BOOST_HANA_CONFIG_HPP)
#error "espalier::comm brought the compile-time half"
#endif

int main() { return espalier::comm::mpi_is_running() ? 1 : 0; }
