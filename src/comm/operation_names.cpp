// SPDX-License-Identifier: Apache-2.0
// Names of algorithms, for errors and tables.
#include <tutti/algorithm.hpp>

namespace tutti {

const char* name_of(algorithm a) noexcept {
  switch (a) {
    case algorithm::automatic:
      return "automatic";
    case algorithm::binomial:
      return "binomial";
    case algorithm::bruck:
      return "bruck";
    case algorithm::direct:
      return "direct";
    case algorithm::dissemination:
      return "dissemination";
    case algorithm::linear:
      return "linear";
    case algorithm::pairwise:
      return "pairwise";
    case algorithm::rabenseifner:
      return "rabenseifner";
    case algorithm::recursive_doubling:
      return "recursive_doubling";
    case algorithm::ring:
      return "ring";
    case algorithm::scatter_all_gather:
      return "scatter_all_gather";
    case algorithm::shared_memory:
      return "shared_memory";
    case algorithm::hierarchical:
      return "hierarchical";
    case algorithm::hierarchical_split:
      return "hierarchical_split";
  }
  return "?";
}

}  // namespace tutti
