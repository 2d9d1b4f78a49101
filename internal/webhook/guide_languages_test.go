//go:build integration

package webhook

import "testing"

func TestGuidePython(t *testing.T) {
	t.Parallel()
	runGuide(t, map[string]string{
		"receiver.py": guideSnippet(t, "python"),
		"main.py": `import base64, json, sys
from receiver import verify

verdicts = []
for c in json.load(sys.stdin):
    try:
        verify(c["secret"], c["headers"], base64.b64decode(c["body"]))
        verdicts.append(True)
    except ValueError:
        verdicts.append(False)
print(json.dumps(verdicts))
`,
	}, "python3", "main.py")
}

func TestGuideNode(t *testing.T) {
	t.Parallel()
	runGuide(t, map[string]string{
		"main.js": guideSnippet(t, "javascript") + `
const verdicts = JSON.parse(require("node:fs").readFileSync(0)).map((c) => {
  try {
    verify(c.secret, c.headers, Buffer.from(c.body, "base64"));
    return true;
  } catch {
    return false;
  }
});
console.log(JSON.stringify(verdicts));
`,
	}, "node", "main.js")
}
