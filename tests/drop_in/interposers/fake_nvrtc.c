// SPDX-License-Identifier: Apache-2.0
// A libnvrtc that compiles nothing: its PTX and its machine code are the given options. Its LTO-IR
// is a kernel with the source and the options in a comment.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Program {
  char options[1024];
  char source[1024];
};

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 7;
  return 0;
}

const char* nvrtcGetErrorString(int result) { return result == 0 ? "fine" : "fake error"; }

int nvrtcCreateProgram(struct Program** program, const char* source, const char* name, int headers,
                       const char* const* texts, const char* const* names) {
  *program = calloc(1, sizeof **program);
  snprintf((*program)->source, sizeof(*program)->source, "%s", source);
  snprintf((*program)->options, sizeof(*program)->options, " %s %s %d %s %s", source, name, headers,
           headers == 0 ? "" : texts[0], headers == 0 ? "" : names[0]);
  return 0;
}

int nvrtcDestroyProgram(struct Program** program) {
  free(*program);
  *program = NULL;
  return 0;
}

int nvrtcCompileProgram(struct Program* program, int count, const char* const* options) {
  program->options[0] = '\0';
  for (int i = 0; i < count; ++i) {
    strncat(program->options, " ", sizeof program->options - strlen(program->options) - 1);
    strncat(program->options, options[i], sizeof program->options - strlen(program->options) - 1);
  }
  return 0;
}

static int Give(const char* kind, const struct Program* program, size_t* bytes, char* text) {
  if (bytes != NULL) *bytes = strlen(kind) + strlen(program->options) + 1;
  if (text != NULL) sprintf(text, "%s%s", kind, program->options);
  return 0;
}
int nvrtcGetPTXSize(struct Program* program, size_t* bytes) {
  return Give("PTX", program, bytes, NULL);
}
int nvrtcGetPTX(struct Program* program, char* text) { return Give("PTX", program, NULL, text); }
int nvrtcGetCUBINSize(struct Program* program, size_t* bytes) {
  return Give("CUBIN", program, bytes, NULL);
}
int nvrtcGetCUBIN(struct Program* program, char* text) {
  return Give("CUBIN", program, NULL, text);
}

static void LtoIr(const struct Program* program, char* text, size_t bytes) {
  snprintf(text, bytes,
           ".version 7.0\n.target sm_75\n.address_size 64\n/*%s%s*/\n"
           ".visible .entry gpushared_anchor()\n{\nret;\n}\n",
           program->source, program->options);
}
int nvrtcGetLTOIRSize(struct Program* program, size_t* bytes) {
  char text[1024];
  LtoIr(program, text, sizeof text);
  *bytes = strlen(text) + 1;
  return 0;
}
int nvrtcGetLTOIR(struct Program* program, char* text) {
  LtoIr(program, text, 1024);
  return 0;
}
