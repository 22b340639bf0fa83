// CPython, embedded.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static int (*run)(const char *, void *);
static const char *scripts[] = {
    "import json,re,collections,hashlib,random\nx=json.dumps({'a':[1,2,{'b':3.5}]*50})\ny=json.loads(x)\n",
    "d={}\nfor i in range(3000): d['k%d'%(i*7919%1009)]=[i]*(i%7)\n",
    "class E(Exception): pass\ndef f(n):\n  if n==0: raise E('x')\n  try:\n    f(n-1)\n  finally:\n    d['d%d'%n]=n\ntry:\n  f(50)\nexcept E as e: d['e']=str(e)\n",
    "r=re.findall(r'(\\w+)@(\\w+)\\.com',' '.join('u%d@h%d.com'%(i,i) for i in range(300)))\n",
    "h=hashlib.sha256(b'x'*10000).hexdigest()\ns=sorted(random.Random(4).sample(range(100000),5000))\nz=12345678901234567890**40\n",
    "import gc\ngc.collect()\nt=tuple(str(i) for i in range(2000))\ndel d\nassert h=='%s' % hashlib.sha256(b'x'*10000).hexdigest()\n"};
void python_open(void *a) {
    void *h = dlopen("libpython3.11.so.1.0", RTLD_NOW | RTLD_GLOBAL); if (!h) abort();
    run = dlsym(h, "PyRun_SimpleStringFlags"); ((void (*)(int))dlsym(h, "Py_InitializeEx"))(0);
}
void python_run(void *arg) { if (run(scripts[(size_t)arg], 0)) abort(); }
