// SPDX-License-Identifier: Apache-2.0
// The new communicator would be lost.
// EXPECT: conversion from .*basic_request<tutti::communicator>.* to
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  tutti::request splitting = tutti::start(world.split(0, 0));
  co_await splitting;
}
