# SPDX-License-Identifier: Apache-2.0
# The target tutti::torch: tutti::train, and the libraries of the PyTorch that CMake finds: by Torch_DIR or CMAKE_PREFIX_PATH, as
# python -c 'import torch; print(torch.utils.cmake_prefix_path)' prints it. Not by find_package(Torch): that of PyPI's wheels
# asks for the CUDA Toolkit, which tensors of the CPU do not need.
if(TUTTI_TORCH_CONFIG AND NOT EXISTS ${TUTTI_TORCH_CONFIG})   # of a PyTorch that has gone
  unset(TUTTI_TORCH_CONFIG CACHE)
endif()
find_file(TUTTI_TORCH_CONFIG TorchConfig.cmake HINTS ${Torch_DIR} PATH_SUFFIXES Torch share/cmake/Torch)
if(TUTTI_TORCH_CONFIG AND NOT TARGET tutti::torch)
  get_filename_component(tutti_torch_root ${TUTTI_TORCH_CONFIG}/../../../.. ABSOLUTE)
  add_library(tutti::torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(tutti::torch SYSTEM INTERFACE ${tutti_torch_root}/include ${tutti_torch_root}/include/torch/csrc/api/include)
  target_link_directories(tutti::torch INTERFACE ${tutti_torch_root}/lib)
  target_link_options(tutti::torch INTERFACE LINKER:-rpath,${tutti_torch_root}/lib)
  target_link_libraries(tutti::torch INTERFACE tutti::train torch torch_cpu c10)
endif()
