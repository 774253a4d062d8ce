// The operator `ops_xyz::squared_relu` for PyTorch. It uses the stable ABI only, so the library fits this
// version of PyTorch and later ones.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>

namespace {

using torch::stable::Tensor;

Tensor squared_relu(const Tensor& x) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float,
                  "squared_relu: expected a tensor of float32");
  const Tensor from = torch::stable::contiguous(x);
  Tensor to = torch::stable::empty_like(from);
  const float* in = static_cast<const float*>(from.const_data_ptr());
  float* out = static_cast<float*>(to.mutable_data_ptr());
  for (int64_t i = 0; i < from.numel(); ++i) out[i] = in[i] > 0 ? in[i] * in[i] : 0;
  return to;
}

// What torch.export asks: the shape of the output, without values.
Tensor squared_relu_shape(const Tensor& x) { return torch::stable::empty_like(x); }

}  // namespace

STABLE_TORCH_LIBRARY(ops_xyz, library) { library.def("squared_relu(Tensor x) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(ops_xyz, CPU, library) {
  library.impl("squared_relu", TORCH_BOX(&squared_relu));
}

STABLE_TORCH_LIBRARY_IMPL(ops_xyz, Meta, library) {
  library.impl("squared_relu", TORCH_BOX(&squared_relu_shape));
}
