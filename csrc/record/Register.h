// Registration of the recorder for every operator, and of the few kernels written by hand.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpu {

void register_kernels();
// self.copy_(src) on one device, as a node.
void record_copy(at::Tensor& self, const at::Tensor& src);

} // namespace tpu
