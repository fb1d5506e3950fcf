"""Small PyTorch models of public packages, each with its inputs: rows (family, package, what it is, build)."""

import torch
from torch import nn

from .stubs import stub

stub("torchvision", "fbgemm_gpu", "tensordict", "torchmetrics", "iopath", "pyre_extensions")

BATCH, LENGTH, VOCABULARY, WIDTH, LAYERS, HEADS = 8, 16, 256, 64, 2, 4
IMAGE = 64


class Loss(nn.Module):
    """A model that answers with one number: its own loss, or the mean square of its first output."""

    def __init__(self, model, names, fixed=None):
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed or {}

    def forward(self, *inputs):
        out = self.model(**dict(zip(self.names, inputs)), **self.fixed)
        loss = getattr(out, "loss", None)
        if loss is not None:
            return loss
        first = out if isinstance(out, torch.Tensor) else next(iter(out.values() if hasattr(out, "values") else out))
        return first.float().pow(2).mean()


class Plain(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        out = self.model(*inputs)
        return out.float().pow(2).mean()


def tokens(*shape):
    return torch.randint(0, VOCABULARY, shape or (BATCH, LENGTH))


TEXT = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            intermediate_size=2 * WIDTH, max_position_embeddings=2 * LENGTH, pad_token_id=None, bos_token_id=1, eos_token_id=2)


def hf(config, model, names="input_ids labels", inputs=None, **options):
    """A transformers model by the names of its classes."""

    def build():
        import transformers
        from transformers import masking_utils

        # The masks of transformers ask for values unless a compiler traces; they do not know a functional fake tensor as such.
        masking_utils.is_tracing = lambda *_: True
        cfg = getattr(transformers, config)(**options)
        net = getattr(transformers, model)(cfg)
        net.train()
        keys = names.split()
        made = inputs() if inputs is not None else tuple(tokens() for _ in keys)
        fixed = {"use_cache": False} if model.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")) else {}
        return Loss(net, keys, fixed), made

    return build


def lm(config, model, **options):
    return hf(config, model, **{**TEXT, **options})


def pixels(size=IMAGE, batch=BATCH):
    return torch.randn(batch, 3, size, size)


VISION = dict(hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=2 * WIDTH,
              image_size=IMAGE, patch_size=16)


def vision(config, model, **options):
    return hf(config, model, names="pixel_values", inputs=lambda: (pixels(),), **options)


def timm_model(name, size=IMAGE, **options):
    def build():
        import timm

        net = timm.create_model(name, pretrained=False, num_classes=16, **options)
        net.train()
        return Plain(net), (pixels(size),)

    return build


class Diffusion(nn.Module):
    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        out = self.model(**dict(zip(self.names, inputs)), return_dict=False)[0]
        return out.float().pow(2).mean()


def diffusion(cls, names, inputs, **options):
    def build():
        import diffusers

        net = getattr(diffusers, cls)(**options)
        net.train()
        return Diffusion(net, names.split()), inputs()

    return build


def dlrm():
    from torchrec.models.dlrm import DenseArch, InteractionArch, OverArch

    class Dlrm(nn.Module):
        """The parts of torchrec's DLRM around PyTorch's own embedding bags."""

        def __init__(self):
            super().__init__()
            self.dense = DenseArch(13, [64, 32])
            self.bags = nn.ModuleList(nn.EmbeddingBag(128, 32, mode="sum") for _ in range(4))
            self.interaction = InteractionArch(num_sparse_features=4)
            self.over = OverArch(32 + 4 + 6, [64, 1])

        def forward(self, dense, labels, offsets, *bags):
            x = self.dense(dense)
            sparse = torch.stack([bag(ids, offsets) for bag, ids in zip(self.bags, bags)], 1)
            out = self.over(self.interaction(x, sparse))
            return nn.functional.binary_cross_entropy_with_logits(out.squeeze(-1), labels)

    ids = [torch.randint(0, 128, (4 * BATCH,)) for _ in range(4)]
    return Dlrm(), (torch.randn(BATCH, 13), torch.rand(BATCH), torch.arange(0, 4 * BATCH, 4), *ids)


def deepfm():
    from torchrec.models.deepfm import DenseArch, FMInteractionArch, OverArch

    class DeepFm(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = DenseArch(13, 64, 32)
            self.tables = nn.ModuleList(nn.Embedding(128, 32) for _ in range(4))
            self.interaction = FMInteractionArch(fm_in_features=5 * 32, sparse_feature_names=list("abcd"), deep_fm_dimension=16)
            self.over = OverArch(32 + 16 + 1)

        def forward(self, dense, labels, *ids):
            x = self.dense(dense)
            from torchrec.sparse.jagged_tensor import KeyedTensor

            values = torch.cat([table(i) for table, i in zip(self.tables, ids)], 1)
            sparse = KeyedTensor(keys=list("abcd"), length_per_key=[32] * 4, values=values)
            out = self.over(self.interaction(x, sparse))
            return nn.functional.binary_cross_entropy(out.squeeze(-1), labels)

    return DeepFm(), (torch.randn(BATCH, 13), torch.rand(BATCH), *(torch.randint(0, 128, (BATCH,)) for _ in range(4)))


def dcn():
    from torchrec.modules.crossnet import LowRankCrossNet
    from torchrec.modules.mlp import MLP

    class Dcn(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(128, 16) for _ in range(3))
            self.cross = LowRankCrossNet(64, 2, low_rank=8)
            self.deep = MLP(64, [64, 32])
            self.out = nn.Linear(96, 1)

        def forward(self, dense, labels, *ids):
            x = torch.cat([dense, *(table(i) for table, i in zip(self.tables, ids))], 1)
            out = self.out(torch.cat([self.cross(x), self.deep(x)], 1))
            return nn.functional.binary_cross_entropy_with_logits(out.squeeze(-1), labels)

    return Dcn(), (torch.randn(BATCH, 16), torch.rand(BATCH), *(torch.randint(0, 128, (BATCH,)) for _ in range(3)))


def lstm():
    net = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.net, self.head = nn.Embedding(VOCABULARY, WIDTH), net, nn.Linear(WIDTH, VOCABULARY)

        def forward(self, ids, labels):
            y, _ = self.net(self.embed(ids))
            return nn.functional.cross_entropy(self.head(y).flatten(0, 1), labels.flatten())

    return Lstm(), (tokens(), tokens())


# Every token through gathered weights of its experts: static shapes, in any dtype.
BATCHED = dict(experts_implementation="batched_mm")
MOE = dict(**BATCHED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=WIDTH, num_local_experts=4)
SEQ2SEQ = dict(vocab_size=VOCABULARY, d_model=WIDTH, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
               decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=64,
               pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
SEQ_NAMES = "input_ids decoder_input_ids labels"
AUDIO = lambda: (torch.randn(BATCH, 1600),)
UNET = dict(sample_size=16, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8)
latents = lambda c=4, s=16: torch.randn(BATCH, c, s, s)
steps = lambda: torch.arange(BATCH) * 10

FAMILIES = [
    # ---- language models of transformers
    ("gpt2", "transformers", "GPT2LMHeadModel", lm("GPT2Config", "GPT2LMHeadModel", n_embd=WIDTH, n_layer=2, n_head=4, n_positions=32)),
    ("llama", "transformers", "LlamaForCausalLM", lm("LlamaConfig", "LlamaForCausalLM", num_key_value_heads=2)),
    ("llama4", "transformers", "Llama4ForCausalLM", lm("Llama4TextConfig", "Llama4ForCausalLM", num_key_value_heads=2, head_dim=16, intermediate_size_mlp=128, num_local_experts=4, attention_chunk_size=16)),
    ("qwen2", "transformers", "Qwen2ForCausalLM", lm("Qwen2Config", "Qwen2ForCausalLM", num_key_value_heads=2)),
    ("qwen3", "transformers", "Qwen3ForCausalLM", lm("Qwen3Config", "Qwen3ForCausalLM", num_key_value_heads=2, head_dim=16)),
    ("qwen3-moe", "transformers", "Qwen3MoeForCausalLM", lm("Qwen3MoeConfig", "Qwen3MoeForCausalLM", num_key_value_heads=2, head_dim=16, **MOE)),
    ("qwen3-next", "transformers", "Qwen3NextForCausalLM", lm("Qwen3NextConfig", "Qwen3NextForCausalLM", num_key_value_heads=2, head_dim=16, linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=16, layer_types=["linear_attention", "full_attention"], shared_expert_intermediate_size=64, **MOE)),
    ("mistral", "transformers", "MistralForCausalLM", lm("MistralConfig", "MistralForCausalLM", num_key_value_heads=2, sliding_window=8)),
    ("mixtral", "transformers", "MixtralForCausalLM", lm("MixtralConfig", "MixtralForCausalLM", **BATCHED, num_key_value_heads=2, num_local_experts=4)),
    ("phi3", "transformers", "Phi3ForCausalLM", lm("Phi3Config", "Phi3ForCausalLM", num_key_value_heads=2)),
    ("gemma2", "transformers", "Gemma2ForCausalLM", lm("Gemma2Config", "Gemma2ForCausalLM", num_key_value_heads=2, head_dim=16)),
    ("gemma3", "transformers", "Gemma3ForCausalLM", lm("Gemma3TextConfig", "Gemma3ForCausalLM", num_key_value_heads=2, head_dim=16)),
    ("falcon", "transformers", "FalconForCausalLM", lm("FalconConfig", "FalconForCausalLM")),
    ("bloom", "transformers", "BloomForCausalLM", lm("BloomConfig", "BloomForCausalLM", n_layer=2, n_head=4)),
    ("opt", "transformers", "OPTForCausalLM", lm("OPTConfig", "OPTForCausalLM", ffn_dim=128, word_embed_proj_dim=WIDTH)),
    ("gpt-neox", "transformers", "GPTNeoXForCausalLM", lm("GPTNeoXConfig", "GPTNeoXForCausalLM")),
    ("gpt-j", "transformers", "GPTJForCausalLM", lm("GPTJConfig", "GPTJForCausalLM", n_embd=WIDTH, n_layer=2, n_head=4, n_positions=32, rotary_dim=8)),
    ("gpt-oss", "transformers", "GptOssForCausalLM", lm("GptOssConfig", "GptOssForCausalLM", **BATCHED, num_key_value_heads=2, head_dim=16, num_local_experts=4, num_experts_per_tok=2)),
    ("cohere", "transformers", "CohereForCausalLM", lm("CohereConfig", "CohereForCausalLM", num_key_value_heads=2)),
    ("olmo2", "transformers", "Olmo2ForCausalLM", lm("Olmo2Config", "Olmo2ForCausalLM", num_key_value_heads=2)),
    ("granite", "transformers", "GraniteForCausalLM", lm("GraniteConfig", "GraniteForCausalLM", num_key_value_heads=2)),
    ("starcoder2", "transformers", "Starcoder2ForCausalLM", lm("Starcoder2Config", "Starcoder2ForCausalLM", num_key_value_heads=2)),
    ("glm4", "transformers", "Glm4ForCausalLM", lm("Glm4Config", "Glm4ForCausalLM", num_key_value_heads=2, head_dim=16)),
    ("deepseek-v3", "transformers", "DeepseekV3ForCausalLM", lm("DeepseekV3Config", "DeepseekV3ForCausalLM", **BATCHED, num_key_value_heads=4, n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=32, first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16)),
    ("deepseek-v2", "transformers", "DeepseekV2ForCausalLM", lm("DeepseekV2Config", "DeepseekV2ForCausalLM", **BATCHED, num_key_value_heads=4, n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=32, first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, topk_method="greedy")),
    ("mamba", "transformers", "MambaForCausalLM", lm("MambaConfig", "MambaForCausalLM", state_size=8)),
    ("mamba2", "transformers", "Mamba2ForCausalLM", lm("Mamba2Config", "Mamba2ForCausalLM", state_size=8, num_heads=8, head_dim=16, n_groups=1, chunk_size=8)),
    ("rwkv", "transformers", "RwkvForCausalLM", lm("RwkvConfig", "RwkvForCausalLM", attention_hidden_size=WIDTH)),
    # ---- encoders and sequence to sequence
    ("bert", "transformers", "BertForMaskedLM", lm("BertConfig", "BertForMaskedLM", pad_token_id=0)),
    ("roberta", "transformers", "RobertaForMaskedLM", lm("RobertaConfig", "RobertaForMaskedLM", pad_token_id=0)),
    ("albert", "transformers", "AlbertForMaskedLM", lm("AlbertConfig", "AlbertForMaskedLM", pad_token_id=0, embedding_size=32)),
    ("electra", "transformers", "ElectraForMaskedLM", lm("ElectraConfig", "ElectraForMaskedLM", pad_token_id=0, embedding_size=32)),
    ("distilbert", "transformers", "DistilBertForMaskedLM", lm("DistilBertConfig", "DistilBertForMaskedLM", pad_token_id=0, dim=WIDTH, n_layers=2, n_heads=4, hidden_dim=128)),
    ("deberta-v2", "transformers", "DebertaV2ForMaskedLM", lm("DebertaV2Config", "DebertaV2ForMaskedLM", pad_token_id=0, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8)),
    ("modernbert", "transformers", "ModernBertForMaskedLM", lm("ModernBertConfig", "ModernBertForMaskedLM", pad_token_id=0, global_attn_every_n_layers=2, local_attention=8)),
    ("longformer", "transformers", "LongformerForMaskedLM", lm("LongformerConfig", "LongformerForMaskedLM", pad_token_id=0, attention_window=[8, 8])),
    ("t5", "transformers", "T5ForConditionalGeneration", hf("T5Config", "T5ForConditionalGeneration", vocab_size=VOCABULARY, d_model=WIDTH, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0)),
    ("bart", "transformers", "BartForConditionalGeneration", hf("BartConfig", "BartForConditionalGeneration", SEQ_NAMES, **SEQ2SEQ)),
    ("whisper", "transformers", "WhisperForConditionalGeneration", hf("WhisperConfig", "WhisperForConditionalGeneration", "input_features decoder_input_ids labels", lambda: (torch.randn(BATCH, 16, 64), tokens(), tokens()), **SEQ2SEQ, num_mel_bins=16, max_source_positions=32, max_target_positions=32)),
    # ---- speech, vision and both of transformers
    ("wav2vec2", "transformers", "Wav2Vec2Model", hf("Wav2Vec2Config", "Wav2Vec2Model", "input_values", AUDIO, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, conv_dim=(32, 32), conv_stride=(5, 4), conv_kernel=(10, 4), num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, apply_spec_augment=False, layerdrop=0.0)),
    ("hubert", "transformers", "HubertModel", hf("HubertConfig", "HubertModel", "input_values", AUDIO, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, conv_dim=(32, 32), conv_stride=(5, 4), conv_kernel=(10, 4), num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, apply_spec_augment=False, layerdrop=0.0)),
    ("vit", "transformers", "ViTModel", vision("ViTConfig", "ViTModel", **VISION)),
    ("dinov2", "transformers", "Dinov2Model", vision("Dinov2Config", "Dinov2Model", **VISION)),
    ("siglip", "transformers", "SiglipVisionModel", vision("SiglipVisionConfig", "SiglipVisionModel", **VISION)),
    ("clip", "transformers", "CLIPModel", hf("CLIPConfig", "CLIPModel", "input_ids pixel_values", lambda: (tokens(), pixels()), text_config={**TEXT, "projection_dim": 32}, vision_config={**VISION, "projection_dim": 32}, projection_dim=32)),
    ("segformer", "transformers", "SegformerModel", vision("SegformerConfig", "SegformerModel", hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 4])),
    ("sam", "transformers", "SamVisionModel", vision("SamVisionConfig", "SamVisionModel", hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, image_size=IMAGE, patch_size=16, window_size=2, global_attn_indexes=[1], output_channels=32, mlp_dim=128)),
    ("yolos", "transformers", "YolosModel", vision("YolosConfig", "YolosModel", **{**VISION, "image_size": [IMAGE, IMAGE]}, num_detection_tokens=10)),
    ("vivit", "transformers", "VivitModel", hf("VivitConfig", "VivitModel", "pixel_values", lambda: (torch.randn(BATCH, 4, 3, 32, 32),), **{**VISION, "image_size": 32}, num_frames=4, tubelet_size=[2, 16, 16])),
    ("patchtst", "transformers", "PatchTSTModel", hf("PatchTSTConfig", "PatchTSTModel", "past_values", lambda: (torch.randn(BATCH, 64, 4),), num_input_channels=4, context_length=64, patch_length=8, patch_stride=8, d_model=WIDTH, num_attention_heads=4, num_hidden_layers=2, ffn_dim=128)),
    # ---- timm
    ("resnet50", "timm", "resnet50", timm_model("resnet50")),
    ("convnext", "timm", "convnext_atto", timm_model("convnext_atto")),
    ("swin", "timm", "swin_tiny_patch4_window7_224 at 64", timm_model("swin_tiny_patch4_window7_224", img_size=64, window_size=4, embed_dim=32, depths=(2, 2), num_heads=(2, 4))),
    ("swinv2", "timm", "swinv2_tiny_window8_256 at 64", timm_model("swinv2_tiny_window8_256", img_size=64, window_size=4, embed_dim=32, depths=(2, 2), num_heads=(2, 4))),
    ("efficientnet", "timm", "efficientnet_b0", timm_model("efficientnet_b0")),
    ("mobilenetv3", "timm", "mobilenetv3_small_050", timm_model("mobilenetv3_small_050")),
    ("regnet", "timm", "regnety_002", timm_model("regnety_002")),
    ("densenet", "timm", "densenet121 (two blocks)", timm_model("densenet121", block_config=(2, 2))),
    ("vgg", "timm", "vgg11_bn", timm_model("vgg11_bn", size=224)),
    ("mixer", "timm", "mixer_s32_224 at 64", timm_model("mixer_s32_224", img_size=64)),
    ("maxvit", "timm", "maxvit_rmlp_pico_rw_256 at 64", timm_model("maxvit_rmlp_pico_rw_256", img_size=64, depths=(1, 1), embed_dim=(32, 64))),
    ("beit", "timm", "beit_base_patch16_224 at 64", timm_model("beit_base_patch16_224", img_size=64, embed_dim=64, depth=2, num_heads=4)),
    ("eva02", "timm", "eva02_tiny_patch14_224 at 56", timm_model("eva02_tiny_patch14_224", size=56, img_size=56, embed_dim=64, depth=2, num_heads=4)),
    ("xcit", "timm", "xcit_nano_12_p16_224 at 64", timm_model("xcit_nano_12_p16_224", img_size=64, embed_dim=64, depth=2, num_heads=4)),
    ("cait", "timm", "cait_xxs24_224 at 64", timm_model("cait_xxs24_224", img_size=64, embed_dim=64, depth=2, num_heads=4)),
    ("pvt-v2", "timm", "pvt_v2_b0", timm_model("pvt_v2_b0")),
    ("focalnet", "timm", "focalnet_tiny_srf", timm_model("focalnet_tiny_srf")),
    ("poolformer", "timm", "poolformer_s12", timm_model("poolformer_s12")),
    ("gmlp", "timm", "gmlp_ti16_224 at 64", timm_model("gmlp_ti16_224", img_size=64)),
    ("mobilevit", "timm", "mobilevit_xxs", timm_model("mobilevit_xxs")),
    # ---- diffusers
    ("unet2d", "diffusers", "UNet2DModel", diffusion("UNet2DModel", "sample timestep", lambda: (latents(3), steps()), in_channels=3, out_channels=3, down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=16, **UNET)),
    ("unet2d-condition", "diffusers", "UNet2DConditionModel", diffusion("UNet2DConditionModel", "sample timestep encoder_hidden_states", lambda: (latents(), steps(), torch.randn(BATCH, LENGTH, 32)), cross_attention_dim=32, attention_head_dim=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), **UNET)),
    ("dit", "diffusers", "DiTTransformer2DModel", diffusion("DiTTransformer2DModel", "hidden_states timestep class_labels", lambda: (latents(), steps(), torch.arange(BATCH)), num_attention_heads=4, attention_head_dim=16, num_layers=2, sample_size=16, norm_num_groups=8)),
    ("pixart", "diffusers", "PixArtTransformer2DModel", diffusion("PixArtTransformer2DModel", "hidden_states timestep encoder_hidden_states", lambda: (latents(), steps(), torch.randn(BATCH, LENGTH, 64)), num_attention_heads=4, attention_head_dim=16, num_layers=2, sample_size=16, cross_attention_dim=64, caption_channels=64, use_additional_conditions=False)),
    ("sd3", "diffusers", "SD3Transformer2DModel", diffusion("SD3Transformer2DModel", "hidden_states encoder_hidden_states pooled_projections timestep", lambda: (latents(), torch.randn(BATCH, LENGTH, 64), torch.randn(BATCH, 32), steps()), sample_size=16, in_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=4, joint_attention_dim=64, caption_projection_dim=64, pooled_projection_dim=32, out_channels=4)),
    ("flux", "diffusers", "FluxTransformer2DModel", diffusion("FluxTransformer2DModel", "hidden_states encoder_hidden_states pooled_projections timestep img_ids txt_ids", lambda: (torch.randn(BATCH, 16, 16), torch.randn(BATCH, LENGTH, 64), torch.randn(BATCH, 32), torch.rand(BATCH), torch.zeros(16, 3), torch.zeros(LENGTH, 3)), in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=4, joint_attention_dim=64, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8))),
    ("autoencoder-kl", "diffusers", "AutoencoderKL", diffusion("AutoencoderKL", "sample", lambda: (torch.randn(BATCH, 3, 32, 32),), down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"), up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"), block_out_channels=(16, 32), norm_num_groups=8)),
    ("vq", "diffusers", "VQModel", diffusion("VQModel", "sample", lambda: (torch.randn(BATCH, 3, 32, 32),), down_block_types=("DownEncoderBlock2D",), up_block_types=("UpDecoderBlock2D",), block_out_channels=(16,), norm_num_groups=8, num_vq_embeddings=32)),
    ("prior", "diffusers", "PriorTransformer", diffusion("PriorTransformer", "hidden_states timestep proj_embedding encoder_hidden_states", lambda: (torch.randn(BATCH, 64), steps(), torch.randn(BATCH, 64), torch.randn(BATCH, LENGTH, 64)), num_attention_heads=4, attention_head_dim=16, num_layers=2, embedding_dim=64, num_embeddings=LENGTH, additional_embeddings=4)),
    ("wan", "diffusers", "WanTransformer3DModel", diffusion("WanTransformer3DModel", "hidden_states timestep encoder_hidden_states", lambda: (torch.randn(BATCH, 4, 2, 8, 8), steps(), torch.randn(BATCH, LENGTH, 32)), num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=4, text_dim=32, freq_dim=32, ffn_dim=128, num_layers=2)),
    # ---- recommendation and recurrent
    ("dlrm", "torchrec", "DLRM's dense, interaction and over parts, EmbeddingBag tables", dlrm),
    ("deepfm", "torchrec", "DeepFM's parts, Embedding tables", deepfm),
    ("dcn", "torchrec", "LowRankCrossNet and MLP, Embedding tables", dcn),
    ("lstm", "torch", "nn.LSTM, two layers", lstm),
]
