// The operator `Ops_xyz>SquaredRelu` for TensorFlow. Its C++ interface changes with each version, so the library
// fits the version that it was compiled with.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace {

using namespace tensorflow;

REGISTER_OP("Ops_xyz>SquaredRelu")
    .Input("x: float")
    .Output("y: float")
    .SetShapeFn(shape_inference::UnchangedShape);

class SquaredRelu : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const auto in = x.flat<float>();
    auto out = y->flat<float>();
    for (int64_t i = 0; i < in.size(); ++i) out(i) = in(i) > 0 ? in(i) * in(i) : 0;
  }
};

REGISTER_KERNEL_BUILDER(Name("Ops_xyz>SquaredRelu").Device(DEVICE_CPU), SquaredRelu);

}  // namespace
