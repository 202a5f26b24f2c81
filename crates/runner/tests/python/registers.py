"""A Modbus server (pymodbus) at port argv[1]: holding register N, from 0 to 99, holds N + 218."""

import sys

from pymodbus.datastore import ModbusDeviceContext, ModbusSequentialDataBlock, ModbusServerContext
from pymodbus.server import StartTcpServer

# pymodbus counts a block's registers from 1.
registers = ModbusSequentialDataBlock(1, [number + 218 for number in range(100)])
device = ModbusDeviceContext(hr=registers)
context = ModbusServerContext(devices=device, single=True)
StartTcpServer(context, address=("127.0.0.1", int(sys.argv[1])))
