/**
 * The text of a program, as an FX graph, whose names, sources and comments try to be markup or
 * script.
 */
export const SCRIPT = '<img src=x onerror=alert(1)><script>alert(2)</script>';

export const HOSTILE = `class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[64, 64]", w: "f32[64, 64]"):
        # File: ${SCRIPT}.py:1 in ${SCRIPT}, code: "${SCRIPT}"
        mm: "f32[64, 64]" = torch.ops.aten.mm.default(x, w)
        relu: "f32[64, 64]" = torch.ops.aten.relu.default(mm)
        return relu
`;
