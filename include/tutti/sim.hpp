// SPDX-License-Identifier: Apache-2.0
// The simulator, and forecasts of the time that collectives take. Link with tutti::sim.
#pragma once

#include <tutti/sim/forecast.hpp>
#include <tutti/sim/simulation.hpp>
