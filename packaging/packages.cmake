# SPDX-License-Identifier: Apache-2.0
# Debian packages by CPack: server, client library with the drop-in, dev and tools. Included last, with
# GPUSHARED_PACKAGE; packaging/README.md describes how to build them and their contents.
set(GPUSHARED_MAINTAINER "gpushared maintainers <maintainers@gpushared.invalid>" CACHE STRING
  "Who the packages say maintains them: a name and an address")
find_program(GPUSHARED_SCDOC scdoc REQUIRED)
find_program(GPUSHARED_GZIP gzip REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
include(GNUInstallDirs)
set(here "${PROJECT_SOURCE_DIR}/packaging")
set(made "${CMAKE_BINARY_DIR}/packaging")
file(MAKE_DIRECTORY "${made}")

# gpushared_gzipped(<result> <name> <command ...>): compresses the command's output as Debian requires.
function(gpushared_gzipped result name)
  cmake_parse_arguments(arg "" "" "COMMAND;DEPENDS" ${ARGN})
  add_custom_command(OUTPUT "${made}/${name}.gz"
    COMMAND ${arg_COMMAND} > "${made}/${name}"
    COMMAND "${GPUSHARED_GZIP}" -9nf "${made}/${name}"
    DEPENDS ${arg_DEPENDS} VERBATIM)
  set(${result} "${made}/${name}.gz" PARENT_SCOPE)
endfunction()

# ---- manual pages and completions, with the component of each program
set(outputs)
set(pages server:gpushared.8 server:gpushared.toml.5 tools:gpusharedctl.1 tools:gpushared-mps-control.1
  tools:gpushared-sim.1 tools:gpushared-web.8)
set(completed server:gpushared tools:gpusharedctl tools:gpushared-sim tools:gpushared-web)
if(TARGET gpushared-kubernetes)
  list(APPEND pages kubernetes:gpushared-kubernetes.8)
  list(APPEND completed kubernetes:gpushared-kubernetes)
endif()
if(TARGET gpushared-dra)
  list(APPEND pages kubernetes:gpushared-dra.8)
  list(APPEND completed kubernetes:gpushared-dra)
endif()
foreach(entry IN LISTS pages)
  string(REPLACE ":" ";" entry "${entry}")
  list(GET entry 0 component)
  list(GET entry 1 page)
  # The server itself generates the list of its options.
  gpushared_gzipped(output "${page}" DEPENDS "${here}/man/${page}.scd" "${here}/man/fill.py" gpushared
    COMMAND Python3::Interpreter -B "${here}/man/fill.py" "${here}/man/${page}.scd" $<TARGET_FILE:gpushared>
      | "${GPUSHARED_SCDOC}")
  list(APPEND outputs "${output}")
  string(REGEX MATCH "[0-9]$" section "${page}")
  install(FILES "${output}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}" COMPONENT ${component})
endforeach()

# Generated from the programs' help.
foreach(entry IN LISTS completed)
  string(REPLACE ":" ";" entry "${entry}")
  list(GET entry 0 component)
  list(GET entry 1 program)
  foreach(shell bash zsh)
    set(output "${made}/${program}.${shell}")
    add_custom_command(OUTPUT "${output}"
      COMMAND Python3::Interpreter -B "${here}/completions/generate.py" ${shell} $<TARGET_FILE:${program}> > "${output}"
      DEPENDS "${here}/completions/generate.py" ${program} VERBATIM)
    list(APPEND outputs "${output}")
  endforeach()
  install(FILES "${made}/${program}.bash" DESTINATION share/bash-completion/completions RENAME ${program}
    COMPONENT ${component})
  install(FILES "${made}/${program}.zsh" DESTINATION share/zsh/vendor-completions RENAME _${program}
    COMPONENT ${component})
endforeach()

# ---- the service. Its socket unit, if enabled, starts first.
file(GLOB units RELATIVE "${here}" CONFIGURE_DEPENDS "${here}/*.socket" "${here}/*.service")
set(sockets ${units})
list(FILTER sockets INCLUDE REGEX "\\.socket$")
# gpushared-web.service is not enabled, because gpushared-web listens on TCP.
set(started ${units})
list(REMOVE_ITEM started gpushared-web.service)
if(NOT GPUSHARED_BUILD_MIG)
  list(REMOVE_ITEM units gpushared-mig.service)
  list(REMOVE_ITEM started gpushared-mig.service)
endif()
list(JOIN started " " GPUSHARED_UNITS)
list(JOIN sockets " " GPUSHARED_SOCKET_UNITS)
foreach(unit IN LISTS units)
  install(FILES "${here}/${unit}" DESTINATION lib/systemd/system COMPONENT server)
endforeach()
install(FILES "${here}/debian/gpushared.sysusers" DESTINATION lib/sysusers.d RENAME gpushared.conf COMPONENT server)
install(FILES "${here}/gpushared.toml" DESTINATION /etc/gpushared COMPONENT server)
foreach(script postinst prerm postrm)
  configure_file("${here}/debian/${script}" "${made}/${script}" @ONLY
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endforeach()

# For Grafana and Prometheus; operators import these files manually.
install(FILES "${here}/grafana/gpushared.json" DESTINATION share/gpushared/grafana COMPONENT tools)
install(FILES "${here}/prometheus/gpushared.rules.yml" DESTINATION share/gpushared/prometheus COMPONENT tools)

# Provides the name of MPS's program for users who add this directory to the PATH.
install(DIRECTORY DESTINATION lib/gpushared/mps COMPONENT tools)
install(CODE [[
  file(CREATE_LINK ../../../bin/gpushared-mps-control
    "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/gpushared/mps/nvidia-cuda-mps-control" SYMBOLIC)]] COMPONENT tools)

# Examples for sites with Slurm or Kubernetes.
set(clusters)
if(TARGET gpushared_spank)
  list(APPEND clusters slurm)
  install(FILES "${here}/slurm/gpushared.lua" "${here}/slurm/gpushared.toml" "${here}/slurm/job_submit.lua"
    "${here}/slurm/plugstack.conf" "${here}/slurm/slurm.toml" DESTINATION share/gpushared/slurm COMPONENT slurm)
endif()
if(TARGET gpushared-kubernetes)
  list(APPEND clusters kubernetes)
  install(FILES "${here}/kubernetes/claim.yaml" "${here}/kubernetes/dra.toml" "${here}/kubernetes/dra.yaml"
    "${here}/kubernetes/gpushared.toml" "${here}/kubernetes/kustomization.yaml" "${here}/kubernetes/namespace.yaml"
    "${here}/kubernetes/make_image.py" "${here}/kubernetes/pair.yaml" "${here}/kubernetes/plugin.yaml"
    "${here}/kubernetes/server.yaml" DESTINATION share/gpushared/kubernetes COMPONENT kubernetes)
endif()

# ---- the packages
string(REPLACE "." ";" version "${PROJECT_VERSION}")
list(GET version 0 major)
list(GET version 1 minor)
set(CPACK_COMPONENTS_ALL server client drop_in dev tools ${clusters})
set(CPACK_COMPONENT_CLIENT_GROUP library)
set(CPACK_COMPONENT_DROP_IN_GROUP library)
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_BINARY_DIR}/packages")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${GPUSHARED_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(same "(= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_SERVER_PACKAGE_NAME gpushared)
set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_SERVER_PACKAGE_DEPENDS
  "gpushared-tools ${same}, systemd | systemd-standalone-sysusers | systemd-sysusers")
set(CPACK_DEBIAN_SERVER_PACKAGE_RECOMMENDS "libgpushared${major}.${minor} ${same}")
set(CPACK_DEBIAN_SERVER_DESCRIPTION "server that shares a GPU between processes
 Several processes use one GPU without spoiling each other's latency. High
 priority work goes first, and low priority work fills the gaps and steps
 aside between two thread blocks. Without a GPU, kernels run on the CPU.")
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA
  "${here}/debian/conffiles;${made}/postinst;${made}/prerm;${made}/postrm")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME "libgpushared${major}.${minor}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "client library of gpushared, and its CUDA driver drop-in
 Programs that link the library submit kernels and copies to a gpushared
 server. The drop-in lets unmodified programs of the CUDA driver's interface
 do so; gpusharedctl run starts them with it.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${here}/debian/triggers")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libgpushared-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libgpushared${major}.${minor} ${same}")
set(CPACK_DEBIAN_DEV_DESCRIPTION "headers and static library of gpushared's client library
 What programs need that are compiled against the client library, in C++ and
 C: headers, a static library, and files for CMake and pkg-config.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME gpushared-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "programs of operators for gpushared
 gpusharedctl asks a gpushared server who is there and what they used, and
 tells it what to change. gpushared-mps-control takes the commands of
 NVIDIA's Multi-Process Service. gpushared-sim says on which node a job fits.")

set(CPACK_DEBIAN_SLURM_PACKAGE_NAME gpushared-slurm)
set(CPACK_DEBIAN_SLURM_PACKAGE_SECTION admin)
# Slurm loads only plugins built for its own release.
set(CPACK_DEBIAN_SLURM_PACKAGE_RECOMMENDS "gpushared ${same}, slurm-client")
set(CPACK_DEBIAN_SLURM_DESCRIPTION "Slurm plugin of gpushared
 Gives each step of a job a way into its node's gpushared server, with the
 class of the job's QOS and the share that the controller placed it by.")

set(CPACK_DEBIAN_KUBERNETES_PACKAGE_NAME gpushared-kubernetes)
set(CPACK_DEBIAN_KUBERNETES_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_KUBERNETES_PACKAGE_RECOMMENDS "gpushared ${same}")
set(CPACK_DEBIAN_KUBERNETES_PACKAGE_SUGGESTS "python3")
set(CPACK_DEBIAN_KUBERNETES_DESCRIPTION "Kubernetes device plugin and DRA driver of gpushared
 The plugin offers the endpoints of a node's gpushared server as resources of
 pods, the driver offers parts of its devices to their claims. Manifests for
 a cluster are included.")

# Required by Debian in every package.
gpushared_gzipped(changelog changelog.gz.in DEPENDS "${here}/debian/changelog.py" "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
  COMMAND Python3::Interpreter -B "${here}/debian/changelog.py" "${PROJECT_VERSION}" "${GPUSHARED_MAINTAINER}"
    "${PROJECT_SOURCE_DIR}/CHANGELOG.md")
list(APPEND outputs "${changelog}")
set(named server:gpushared "client:${CPACK_DEBIAN_LIBRARY_PACKAGE_NAME}" dev:libgpushared-dev tools:gpushared-tools)
foreach(component IN LISTS clusters)
  list(APPEND named "${component}:gpushared-${component}")
endforeach()
foreach(entry IN LISTS named)
  string(REPLACE ":" ";" entry "${entry}")
  list(GET entry 0 component)
  list(GET entry 1 name)
  install(FILES "${here}/debian/copyright" DESTINATION "share/doc/${name}" COMPONENT ${component})
  install(FILES "${changelog}" DESTINATION "share/doc/${name}" RENAME changelog.gz COMPONENT ${component})
  if(EXISTS "${here}/debian/${name}.lintian-overrides")
    install(FILES "${here}/debian/${name}.lintian-overrides" DESTINATION share/lintian/overrides RENAME ${name}
      COMPONENT ${component})
  endif()
endforeach()
add_custom_target(gpushared_package_files ALL DEPENDS ${outputs})
include(CPack)
