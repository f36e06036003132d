// Copies in every direction, reads by the host, and storages that change their size.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpu {

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst);
at::Scalar local_scalar_dense(const at::Tensor& self);
void resize_storage(c10::StorageImpl* storage, int64_t num_bytes);
const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat> memory_format);

} // namespace tpu
