"""Reference results of small random models, computed by the original Python libraries.

    python reference.py write FOLDER [--large]   models and their expected results
    python reference.py verify FOLDER            loads what burn-dp-models wrote

`cargo xtask finetune check --python PYTHON` calls both. The files in tests/golden were written by

    torch 2.15.0, torchvision 0.29.2, transformers 5.23.0, tokenizers 0.23.3, peft 0.21.2,
    safetensors 0.8.0

Each expected result is computed by a loop over single examples, in double precision and without
padding: the scores, the norm of the gradient, and the sum of the gradients clipped to the median
norm.
"""

import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch.nn.functional import cross_entropy
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
)

CLASSES = 3


def text_config(large):
    size = {"vocab_size": 4096 if large else 40}
    gpt2 = {"n_positions": 128, "n_embd": 128, "n_layer": 4, "n_head": 4}
    bert = {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 512,
        "max_position_embeddings": 130,
    }
    if not large:
        gpt2 = {"n_positions": 12, "n_embd": 8, "n_layer": 2, "n_head": 2}
        bert = {
            "hidden_size": 8,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 12,
            "max_position_embeddings": 14,
        }
    gpt2 |= size | {"bos_token_id": 0, "eos_token_id": 0}
    return gpt2, bert | size


def models(large):
    gpt2, bert = text_config(large)
    roberta = bert | {"pad_token_id": 1, "type_vocab_size": 1}
    vit = {
        "hidden_size": 96 if large else 8,
        "num_hidden_layers": 4 if large else 2,
        "num_attention_heads": 4 if large else 2,
        "intermediate_size": 192 if large else 12,
        "image_size": 32 if large else 8,
        "patch_size": 4,
        "num_labels": CLASSES,
    }
    labels = {"num_labels": CLASSES}
    yield "gpt2-generate", GPT2LMHeadModel(GPT2Config(**gpt2))
    gpt2_labels = GPT2Config(**gpt2, **labels, pad_token_id=0)
    yield "gpt2-classify", GPT2ForSequenceClassification(gpt2_labels)
    yield "bert-classify", BertForSequenceClassification(BertConfig(**bert, **labels))
    yield "roberta-classify", RobertaForSequenceClassification(RobertaConfig(**roberta, **labels))
    yield "vit-classify", ViTForImageClassification(ViTConfig(**vit))
    yield "resnet-classify", resnet(BasicBlock if large else Bottleneck, 16 if large else 2)


def resnet(block, width):
    """A narrow residual network."""
    model = ResNet(block, [1, 2, 1, 1])
    model.inplanes = width
    model.conv1 = torch.nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    model.bn1 = torch.nn.BatchNorm2d(width)
    model.layer1 = model._make_layer(block, width, 1)
    model.layer2 = model._make_layer(block, 2 * width, 2, stride=2)
    model.layer3 = model._make_layer(block, 4 * width, 1, stride=2)
    model.layer4 = model._make_layer(block, 8 * width, 1, stride=2)
    model.fc = torch.nn.Linear(8 * width * block.expansion, CLASSES)
    return model


def randomize(model):
    """Moves every parameter, so that no bias is zero and no norm the identity."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def store_statistics(model):
    """Stores the statistics of random images, as a pre-training would."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        model.train()(torch.randn(32, 3, 32, 32))


def text_inputs(vocabulary, lengths):
    # Small ids have a special meaning in some models.
    rows = [torch.randint(3, vocabulary, (length,)).tolist() for length in lengths]
    width = max(lengths)
    return {
        "ids": torch.tensor([row + [-1] * (width - len(row)) for row in rows]),
        "given": torch.tensor([2] + [1] * (len(lengths) - 1)),
        "labels": torch.arange(len(lengths)) % CLASSES,
    }


def forward(model, inputs, row):
    """Returns the scores and the loss of one example."""
    label = inputs["labels"][row : row + 1]
    if "images" in inputs:
        logits = model(inputs["images"][row : row + 1].double())
        logits = getattr(logits, "logits", logits)
        return logits, cross_entropy(logits, label)
    ids = inputs["ids"][row : row + 1]
    ids = ids[:, ids[0] >= 0]
    logits = model(ids).logits
    if logits.dim() == 2:
        return logits, cross_entropy(logits, label)
    targets = ids[0, 1:].clone()
    targets[: inputs["given"][row] - 1] = -100
    return logits[0], cross_entropy(logits[0, :-1], targets, ignore_index=-100)


def expected(model, inputs):
    model = model.double().eval()
    # What a checkpoint stores: a tied parameter once, modules by their stored names.
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    scores, norms, gradients = [], [], []
    for row in range(len(inputs["labels"])):
        logits, loss = forward(model, inputs, row)
        grads = torch.autograd.grad(loss, [p for _, p in named])
        scores.append(logits.detach())
        norms.append(torch.sqrt(sum((g**2).sum() for g in grads)))
        gradients.append(grads)
    norms = torch.stack(norms)
    threshold = norms.median()
    results = {"logits": torch.cat(scores), "norms": norms, "threshold": threshold.reshape(1)}
    for index, (name, _) in enumerate(named):
        clipped = [g[index] * (threshold / n).clamp(max=1.0) for g, n in zip(gradients, norms)]
        results["sum/" + name] = sum(clipped)
    return {name: value.float().contiguous() for name, value in results.items()}


def stored_names(model, folder, results):
    """Renames the sums from the names of the modules to the names of the checkpoint."""
    if isinstance(model, ResNet):
        return results
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    marked = {name: torch.full(s, float(i)) for i, (name, s) in enumerate(shapes.items())}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(marked[name])
    model.float().save_pretrained(folder)
    stored = load_file(os.path.join(folder, "model.safetensors"))
    by_mark = {int(t.flatten()[0]): name for name, t in stored.items() if t.numel()}
    order = list(shapes)
    return {
        "sum/" + by_mark[order.index(key[4:])] if key.startswith("sum/") else key: value
        for key, value in results.items()
    }


def write(folder, large):
    import copy
    import tempfile

    torch.manual_seed(0)
    for name, model in models(large):
        randomize(model)
        if isinstance(model, ResNet):
            store_statistics(model)
        target = os.path.join(folder, name)
        if isinstance(model, ResNet):
            os.makedirs(target, exist_ok=True)
            save_file(model.state_dict(), os.path.join(target, "model.safetensors"))
        else:
            model.save_pretrained(target)
        if not large and name in WORDS:
            write_tokenizer(target, WORDS[name])
        if name == "gpt2-classify":
            # The other format of checkpoints.
            weights = load_file(os.path.join(target, "model.safetensors"))
            torch.save(weights, os.path.join(target, "pytorch_model.bin"))
            os.remove(os.path.join(target, "model.safetensors"))
        for extra in ["generation_config.json"]:
            path = os.path.join(target, extra)
            if os.path.exists(path):
                os.remove(path)
        if name in ["vit-classify", "resnet-classify"]:
            side = model.config.image_size if name.startswith("vit") else 32
            rows = 8 if large else 3
            inputs = {
                "images": torch.randn(rows, 3, side, side),
                "labels": torch.arange(rows) % CLASSES,
            }
        else:
            lengths = [100, 7, 64, 33, 1 + 1, 90] if large else [7, 4, 5]
            inputs = text_inputs(model.config.vocab_size, lengths)
        results = expected(copy.deepcopy(model), inputs)
        with tempfile.TemporaryDirectory() as scratch:
            results = stored_names(copy.deepcopy(model), scratch, results)
        save_file(inputs | results, os.path.join(target, "expected.safetensors"))
    write_adapter(os.path.join(folder, "gpt2-generate"))


# Whether the tokenizer puts a token before and after a text.
WORDS = {"gpt2-generate": False, "gpt2-classify": False, "bert-classify": True}


def write_tokenizer(target, special):
    """A tokenizer of 40 words."""
    words = ["<|endoftext|>", "[UNK]", "[CLS]", "[SEP]"]
    words += "the a film book was is good bad very not and".split()
    words += [f"w{index}" for index in range(40 - len(words))]
    model = WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["<|endoftext|>", "[CLS]", "[SEP]"])
    if special:
        tokens = [("[CLS]", 2), ("[SEP]", 3)]
        tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", special_tokens=tokens)
    tokenizer.save(os.path.join(target, "tokenizer.json"))


def write_adapter(target):
    """Adapters of other ranks, not zero, and the scores with them."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    model = GPT2LMHeadModel.from_pretrained(target)
    config = LoraConfig(
        r=2,
        lora_alpha=6,
        target_modules=["c_attn", "mlp.c_proj"],
        rank_pattern={"mlp.c_proj": 3},
        fan_in_fan_out=True,
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, config)
    randomize_adapter(model)
    model.save_pretrained(os.path.join(target, "adapter"))
    readme = os.path.join(target, "adapter", "README.md")
    if os.path.exists(readme):
        os.remove(readme)
    inputs = load_file(os.path.join(target, "expected.safetensors"))
    model = model.double().eval()
    with torch.no_grad():
        rows = range(len(inputs["labels"]))
        scores = torch.cat([forward(model, inputs, row)[0] for row in rows])
    save_file(
        {"logits": scores.float()}, os.path.join(target, "adapter", "expected.safetensors")
    )


def randomize_adapter(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.3 * torch.randn_like(parameter))


def read_resnet(folder):
    """Reads a residual network of this script, or the same network with merged adapters."""
    state = load_file(os.path.join(folder, "model.safetensors"))
    block = Bottleneck if "layer1.0.conv3.weight" in state else BasicBlock
    model = resnet(block, len(state["conv1.weight"]))
    model.load_state_dict(state)
    return model


def verify(folder):
    """Loads merged models and adapters that were written by burn-dp-models, in each subfolder, and
    prints the largest difference of their scores from the scores that were written with them,
    relative to the largest score if that is above 1."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    worst = {}
    for name in sorted(os.listdir(folder)):
        target = os.path.join(folder, name)
        written = load_file(os.path.join(target, "scores.safetensors"))
        kind = AutoModelForSequenceClassification if "classify" in name else AutoModelForCausalLM
        kind = ViTForImageClassification if "images" in written else kind
        if os.path.exists(os.path.join(target, "adapter_config.json")):
            with open(os.path.join(target, "adapter_config.json")) as file:
                base = json.load(file)["base_model_name_or_path"]
            labels = {"num_labels": CLASSES} if "classify" in name else {}
            is_resnet = name.startswith("resnet")
            model = read_resnet(base) if is_resnet else kind.from_pretrained(base, **labels)
            model = PeftModel.from_pretrained(model, target)
        elif name.startswith("resnet"):
            model = read_resnet(target)
        else:
            model = kind.from_pretrained(target)
        model = model.double().eval()
        difference = 0.0
        offset = 0
        with torch.no_grad():
            for row in written["images"] if "images" in written else written["ids"].long():
                # The padding of a text is -1.
                row = row.double() if "images" in written else row[row >= 0]
                logits = model(row.unsqueeze(0))
                logits = getattr(logits, "logits", logits).flatten()
                found = written["logits"][offset : offset + len(logits)]
                offset += len(logits)
                worst_of_row = (found - logits).abs().max() / logits.abs().max().clamp(min=1.0)
                if not torch.isfinite(worst_of_row):
                    raise SystemExit("a score is not finite")
                difference = max(difference, worst_of_row.item())
        worst[name] = difference
    print(json.dumps(worst))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], "--large" in sys.argv)
    else:
        verify(sys.argv[2])
