"""Makes a Llama with random weights, small enough to answer at once on a CPU: `python tiny_model.py FOLDER`.

What it says is noise, but of printable pieces only, and it never ends by itself: an answer runs to its `max_tokens`, or
to where a grammar leaves nothing but the end. Runs in the environment of vLLM, which has torch and transformers.
"""

import re
import sys
from pathlib import Path
from pydoc_data.topics import topics

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PIECES = 1536
CONTEXT = 4096
WIDTH = 96
END = "<|end|>"
MARKS = ["<|none|>", "<|begin|>", END, "<|turn|>"]
# A row of zeros in the output layer gives a logit of 0; with weights this wide, the best of the others is far above.
SPREAD = 0.6
PRINTABLE = re.compile(r"[!-~]*[A-Za-z0-9][!-~]*\Z")

TEMPLATE = """\
{%- if tools %}{{ '<|turn|>system\\n<tools>' }}
{%- for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '</tools>' }}
{{- '\\nAnswer <tool_call>{"name": ..., "arguments": ...}</tool_call> to use one.<|end|>\\n' }}{% endif %}
{%- for message in messages %}{{ '<|turn|>' + message.role + '\\n' }}
{%- if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content or [] %}{{ part.text or '' }}{% endfor %}{% endif %}
{%- for call in message.tool_calls or [] %}{{ '<tool_call>' + (call.function | tojson) + '</tool_call>' }}{% endfor %}
{{- '<|end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|turn|>assistant\\n' }}{% endif %}"""


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE, trained on the language reference that every Python brings along."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        special_tokens=MARKS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator((topics[name] for name in sorted(topics)), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=MARKS[0],
        bos_token=MARKS[1],
        eos_token=END,
        model_max_length=CONTEXT,
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def model(words: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Two layers of seeded noise that choose among the pieces that read well."""
    torch.manual_seed(20)
    ends = {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        initializer_range=SPREAD,
        tie_word_embeddings=False,
        **ends,
    )
    llama = LlamaForCausalLM(config).float()
    silent = [piece for piece in range(len(words)) if not PRINTABLE.match(words.decode([piece]).strip())]
    with torch.no_grad():
        llama.lm_head.weight[[*silent, *words.all_special_ids]] = 0.0
    llama.generation_config = GenerationConfig(**ends)
    return llama


def main(folder: Path) -> None:
    """Write both."""
    words = tokenizer()
    words.save_pretrained(folder)
    model(words).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
