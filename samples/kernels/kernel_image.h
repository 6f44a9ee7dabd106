// SPDX-License-Identifier: Apache-2.0
// Embeds a compiled kernel file into the program that uses it, so that the program can be copied as
// a single file. GPUSHARED_KERNEL_IMAGE (set by CMake) is the path of the file.

#ifndef GPUSHARED_SAMPLES_KERNELS_KERNEL_IMAGE_H_
#define GPUSHARED_SAMPLES_KERNELS_KERNEL_IMAGE_H_

__asm__(
    ".pushsection .rodata\n"
    ".balign 16\n"
    "kernel_image_begin:\n"
    ".incbin \"" GPUSHARED_KERNEL_IMAGE
    "\"\n"
    "kernel_image_end:\n"
    ".byte 0\n"
    ".popsection\n");

// The bytes [begin, end) are a fatbin or PTX text. The names are assembler labels.
// NOLINTBEGIN(readability-identifier-naming)
extern const char kernel_image_begin[];
extern const char kernel_image_end[];
// NOLINTEND(readability-identifier-naming)

#endif  // GPUSHARED_SAMPLES_KERNELS_KERNEL_IMAGE_H_
