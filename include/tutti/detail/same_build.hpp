// SPDX-License-Identifier: Apache-2.0
// A program that is compiled with other objects of Asio or of the standard library than tutti does not link.
#pragma once

#include <tutti/detail/asio_config.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/version.hpp>
#include <string_view>

// The macros that change the layout of such objects. F takes the name of one.
#define TUTTI_FOR_EACH_ABI_MACRO(F)           \
  F(BOOST_ASIO_CUSTOM_HANDLER_TRACKING)       \
  F(BOOST_ASIO_DISABLE_EPOLL)                 \
  F(BOOST_ASIO_DISABLE_EVENTFD)               \
  F(BOOST_ASIO_DISABLE_SMALL_BLOCK_RECYCLING) \
  F(BOOST_ASIO_DISABLE_THREADS)               \
  F(BOOST_ASIO_DISABLE_TIMERFD)               \
  F(BOOST_ASIO_ENABLE_BUFFER_DEBUGGING)       \
  F(BOOST_ASIO_ENABLE_HANDLER_TRACKING)       \
  F(BOOST_ASIO_HAS_IO_URING)                  \
  F(BOOST_ASIO_HAS_IO_URING_AS_DEFAULT)       \
  F(_GLIBCXX_DEBUG)

#define TUTTI_TEXT_OF(...) #__VA_ARGS__
// 1 if the macro is defined: its text is then not its name. Call it in the body of an F only.
#define TUTTI_IS_DEFINED(name, text) (std::string_view(text) != name)

namespace tutti::detail {

// Part of a symbol's name, as the type of its parameter. (A template's instance would take longer to compile.)
template <long>
struct is;

// One word of the program's data refers to the symbol. The linker keeps the word with --gc-sections, too.
#if __has_cpp_attribute(gnu::retain)
#define TUTTI_KEEP [[gnu::used, gnu::retain]]
#else
#define TUTTI_KEEP [[gnu::used]]
#endif

// The linker names what differs: built_with_<macro>(is<1>) if the program has defined it and tutti's build has not.
#define TUTTI_NEED(macro)                                                      \
  void built_with_##macro(is<TUTTI_IS_DEFINED(#macro, TUTTI_TEXT_OF(macro))>); \
  TUTTI_KEEP inline constexpr auto* needs_##macro = &built_with_##macro;
TUTTI_FOR_EACH_ABI_MACRO(TUTTI_NEED)
#undef TUTTI_NEED
void built_with_asio_version(is<BOOST_ASIO_VERSION>);
TUTTI_KEEP inline constexpr auto* needs_asio_version = &built_with_asio_version;
#undef TUTTI_KEEP

}  // namespace tutti::detail
