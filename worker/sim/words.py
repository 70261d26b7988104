"""What the simulated engine talks about: the words its vocabulary is made of."""

_SPELT = """
the of and to in is that it for as with on by at from this be are was or an not but have has had were which their one
can all there been if more when will would who so no out up other about into than only some could time these two may
then do first any my now such like our over man even most made after also did many before must through back years where
much your way well down should because each just those people how too little state good very make world still own see
men work long get here between both life being under never day same another know while last might us great old year off
come since against go came right used take three water river mill wheel stone bridge light rain wind field forest
mountain valley garden house window door table letter paper book page word story question answer reason thought idea
memory dream sound music voice song silence morning evening night summer winter spring autumn road path journey travel
ship harbor island coast wave tide current stream channel turbine engine machine metal copper iron glass wood fire smoke
bread salt coffee tea apple market village city street tower square people child mother father friend teacher student
farmer sailor doctor writer painter captain number figure measure balance weight distance speed signal message network
server request token model system process result value change order line point circle pattern surface center edge
corner layer structure method theory practice example problem solution design plan project team company country history
science nature animal bird horse fish tree leaf root seed flower grass snow ice cloud storm sun moon star sky earth
sea lake hill cave desert north south east west early late small large quick slow bright dark warm cold quiet loud
simple clear deep narrow wide strong gentle careful honest curious patient steady useful familiar strange modern ancient
"""
WORDS = _SPELT.split()

_MULTIBYTE_SPELT = "café naïve über señor façade 東京 水車 你好 река мир λόγος नदी 한강 😀 🌊 → — €"
MULTIBYTE = _MULTIBYTE_SPELT.split()

# The first three of an emoticon's four bytes: the token after it must complete the character, so one character is split
# over two tokens as real vocabularies do.
BROKEN = b" \xf0\x9f\x98"

# Characters that come byte by byte, as where a vocabulary lacks them: after each byte those that may follow. No byte
# has two parts to play, so that the byte before tells the next one.
SPELT_IN_BYTES: dict[int, tuple[int, ...]] = {
    0xE6: (0xB0,), 0xB0: (0xB4,),                                      # 水
    0xE5: (0xA4,), 0xA4: (0xA7,),                                      # 大
    0xE2: (0x82,), 0x82: (0xAC,),                                      # €
    0xF0: (0x9F,), 0x9F: (0x8C,), 0x8C: (0x8A, 0x8D, 0x99),            # 🌊 🌍 🌙
}  # fmt: skip
FIRST_BYTES = (0xE6, 0xE5, 0xE2, 0xF0)
# Part of no character: it comes out as U+FFFD with the word after it.
STRAY = 0xFF
