// stub
#include "storm.h"
void mixed(void){}
