# SPDX-License-Identifier: Apache-2.0
# The units name programs and configuration by their full paths, and only the installation knows
# them: `cmake --install build --prefix P` may have another prefix than the build was configured with.
# The caller has set units_build, bindir and sysconfdir.
get_filename_component(prefix "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)

function(full variable dir)
    if(NOT IS_ABSOLUTE "${dir}")
        set(dir "${prefix}/${dir}")
    endif()
    set(${variable} "${dir}" PARENT_SCOPE)
endfunction()

full(CMAKE_INSTALL_FULL_BINDIR "${bindir}")
full(CMAKE_INSTALL_FULL_SYSCONFDIR "${sysconfdir}")
# As GNUInstallDirs has it: what belongs to the system is configured in /etc.
if(CMAKE_INSTALL_FULL_SYSCONFDIR STREQUAL "/usr/etc")
    set(CMAKE_INSTALL_FULL_SYSCONFDIR /etc)
endif()
foreach(unit pelton-scheduler pelton-worker@ pelton-ledger)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/${unit}.service.in ${units_build}/${unit}.service @ONLY)
    file(INSTALL DESTINATION "${prefix}/lib/systemd/system" TYPE FILE
        FILES ${units_build}/${unit}.service)
endforeach()
