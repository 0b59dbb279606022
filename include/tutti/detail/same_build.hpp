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

// One word of the program's data refers to the symbol. The linker keeps the word with --gc-sections, too.
template <auto Symbol>
struct needed_symbol {
#if __has_cpp_attribute(gnu::retain)
  [[gnu::retain]]
#endif
  [[gnu::used]] static inline constexpr auto symbol = Symbol;
};

// The linker names what differs: built_with_<macro><1> if the program has defined it and tutti's build has not.
#define TUTTI_NEED(macro)                                                                    \
  template <long>                                                                            \
  void built_with_##macro();                                                                 \
  extern template void built_with_##macro<TUTTI_IS_DEFINED(#macro, TUTTI_TEXT_OF(macro))>(); \
  template struct needed_symbol<&built_with_##macro<TUTTI_IS_DEFINED(#macro, TUTTI_TEXT_OF(macro))>>;
TUTTI_FOR_EACH_ABI_MACRO(TUTTI_NEED)
#undef TUTTI_NEED
template <long>
void built_with_asio_version();
extern template void built_with_asio_version<BOOST_ASIO_VERSION>();
template struct needed_symbol<&built_with_asio_version<BOOST_ASIO_VERSION>>;

}  // namespace tutti::detail
