/* SPDX-License-Identifier: Apache-2.0 */
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <rankstore.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_core", .m_size = -1};
PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *m = PyModule_Create(&module);
    PyModule_AddStringConstant(m, "version", rks_version());
    return m;
}
