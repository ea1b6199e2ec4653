"""Other engines' forms of a model that evenflow reads as GGUF, so that all start from the same weights.

python bench/peers/models.py MODEL.gguf FOLDER/smollm2-135m      with torch and transformers

FOLDER/smollm2-135m-hf       bf16, in Hugging Face layout
FOLDER/smollm2-135m-w8a8     the same with the decoder's matrices in int8: a scale per output channel, activations
                             made int8 per token as they come, rounded plainly (compressed-tensors, for vLLM)
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

_INT8_MAX = 127


def write_folder(gguf: Path, folder: Path) -> None:
    """transformers does not save a model that it has read from GGUF, so its weights go through a fresh one."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    read: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    settings = {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    fresh: Any = type(read)(type(read.config).from_dict(settings)).to(torch.bfloat16)
    fresh.load_state_dict({name: weight.to(torch.bfloat16) for name, weight in read.state_dict().items()})
    fresh.tie_weights()
    fresh.config.dtype = torch.bfloat16
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(fresh.generation_config, name, getattr(tokenizer, name))
    fresh.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_int8(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    weights: dict[str, Tensor] = {}
    for name, weight in load_file(source / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            weights[name] = weight
            continue
        scale = (weight.float().abs().amax(dim=1, keepdim=True) / _INT8_MAX).clamp(min=1e-8)
        weights[name] = (weight.float() / scale).round().clamp(-_INT8_MAX, _INT8_MAX).to(torch.int8).contiguous()
        weights[f"{name}_scale"] = scale.contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, folder)
    config = json.loads((source / "config.json").read_text())
    int8 = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": int8 | {"strategy": "channel", "dynamic": False},
        "input_activations": int8 | {"strategy": "token", "dynamic": True},
    }
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("out", type=Path, help="where the folders go; -hf and -w8a8 are added to it")
    options = parser.parse_args()
    plain = options.out.with_name(f"{options.out.name}-hf")
    write_folder(options.gguf.absolute(), plain)
    write_int8(plain, options.out.with_name(f"{options.out.name}-w8a8"))


if __name__ == "__main__":
    main()
