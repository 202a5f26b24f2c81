/* Checks over octets, one octet at a time, so that they run along while a message arrives. */
#include "gw_message.h"

uint32_t gw_check_begin(enum gw_check check)
{
    switch (check) {
    case GW_CRC16_MODBUS:
    case GW_CRC16_CCITT:
        return 0xffff;
    case GW_CRC32:
        return 0xffffffff;
    case GW_LRC:
        break;
    }
    return 0;
}

/* Eight steps of a reflected CRC. */
static uint32_t reflected(uint32_t sum, uint32_t polynomial)
{
    for (int bit = 0; bit < 8; bit++)
        sum = sum & 1 ? sum >> 1 ^ polynomial : sum >> 1;
    return sum;
}

static uint32_t straight(uint32_t sum, uint32_t polynomial)
{
    for (int bit = 0; bit < 8; bit++)
        sum = (sum & 0x8000 ? sum << 1 ^ polynomial : sum << 1) & 0xffff;
    return sum;
}

uint32_t gw_check_add(enum gw_check check, uint32_t sum, struct gw_text text)
{
    for (size_t at = 0; at < text.length; at++) {
        uint32_t octet = text.at[at];
        switch (check) {
        case GW_CRC16_MODBUS:
            sum = reflected(sum ^ octet, 0xa001);
            break;
        case GW_CRC32:
            sum = reflected(sum ^ octet, 0xedb88320);
            break;
        case GW_CRC16_CCITT:
            sum = straight(sum ^ octet << 8, 0x1021);
            break;
        case GW_LRC:
            sum = (sum + octet) & 0xff;
            break;
        }
    }
    return sum;
}

unsigned gw_check_octets(enum gw_check check, uint32_t sum, uint8_t octets[4])
{
    unsigned length = check == GW_CRC32 ? 4 : check == GW_LRC ? 1 : 2;
    if (check == GW_CRC16_CCITT)
        sum = (sum & 0xff) << 8 | sum >> 8;
    if (check == GW_CRC32)
        sum = ~sum;
    if (check == GW_LRC)
        sum = 0u - sum;
    for (unsigned at = 0; at < length; at++)
        octets[at] = (uint8_t)(sum >> 8 * at);
    return length;
}
