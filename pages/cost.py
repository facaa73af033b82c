"""Cost: parameters, FLOPs, memory and time of any config, derived; on the loaded model, measured."""

from figures.norms import norms_sentence
from ui import cost_twins_view, cost_view, page, shell
from ui.markdown import plain

LEFT_OUT = (
    "FLOPs are those of matrix products; norms, softmax, rotation, activations and sampling have none here and are "
    "taken as fused into the products beside them. Bytes count each product's operands and result once, weights once a "
    "step whatever the batch, and of a mixture as many experts as even and independent choices would touch. The times "
    "are bounds, not forecasts: no launch or scheduling time, no kernel below its roof, nothing of what several "
    "machines send each other, no work of the host, no paging of the cache, no dequantisation, a whole batch of equal "
    "lengths in step. Training adds no optimizer FLOPs, no pipeline bubbles and no padding; its memory leaves out "
    "dropout masks, temporary buffers and fragmentation. Expert parallelism and heads that predict several tokens are "
    "not modelled."
)

shell.ensure()
page.head(
    "Chapter 7",
    "Cost",
    "Parameters, arithmetic and memory follow from the config. Whether arithmetic or memory sets the time, "
    "follows from the machine.",
)
shown = cost_view.section()
page.section("What is left out")
page.prose(LEFT_OUT)
if shown is not None:
    page.prose(norms_sentence(plain(shown.name), shown.config))
page.section("Formula")
page.formula(
    r"F_\text{fwd} = 2\,T\,N_\text{matrices} + 4\,L\,H D_h\,T S + 2\,n\,D V,\qquad F_\text{train} = 3\,F_\text{fwd}",
    r"t \ge \max\left(\frac{F}{\text{peak}},\ \frac{\text{bytes}}{\text{bandwidth}}\right)",
)
page.prose(
    "$T$ new tokens over $S$ keys in $L$ layers of $H$ heads of $D_h$ dims, logits at $n$ positions over $V$ tokens; a "
    "multiply-add is 2 FLOPs, and MACs are half of them. *Full* attention is the $T \\times S$ rectangle that kernels "
    "execute, *causal* the part that the mask lets through. Roofline: Williams et al. 2009."
)
cost_twins_view.section()
