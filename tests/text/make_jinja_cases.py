#!/usr/bin/python3
"""make_jinja_cases.py > jinja_cases.jsonl: what Jinja2 makes of small templates, one JSON object a line.

The oracle of test_jinja.c where fixtures are absent. Needs Jinja2 (the file was made with 3.1.6); the tests do not.
The environment is that of transformers (utils/chat_template_utils.py). "error" is the exception's text; a template
that cannot be compiled has "syntax" instead, with Jinja2's text for the reader only.
"""
import copy
import datetime
import json
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 1, 2)
VARS = {
    "x": 5, "y": -3, "f": 2.5, "s": "Hello World", "e": "", "n": None, "t": True, "l": [3, 1, 2], "ls": ["b", "A", "c"],
    "d": {"a": 1, "b": [1, 2], "c": {"k": "v"}},
    "m": [{"role": "system", "content": "S"}, {"role": "user", "content": "U éß"}, {"role": "assistant", "content": None}],
    "u": "über 你好", "q": "it's \"q\"\n<a>&",
}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def case(env, template):
    row = {"template": template}
    try:
        row["rendered"] = env.from_string(template).render(**copy.deepcopy(VARS))
    except jinja2.TemplateSyntaxError as e:
        row["syntax"] = e.message
    except Exception as e:  # whatever Python raises is the expected error
        row["error"] = str(e)
    return row


# One template a line; "⏎" stands for a newline.
TEMPLATES = r"""
{{ x }}|{{ f }}|{{ n }}|{{ t }}|{{ s }}|{{ l }}|{{ d }}|{{ m }}|{{ u }}|{{ [u] }}|{{ [q] }}
{{ undefinedthing }}|{{ undefinedthing is defined }}|{{ d.zz is defined }}
{{ 1/2 }} {{ 7//2 }} {{ -7//2 }} {{ -7%3 }} {{ 7%-3 }} {{ 2**10 }} {{ 2**-1 }} {{ 2**3**2 }} {{ -2**2 }} {{ 7.5//2 }} {{ -7.5%2 }}
{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.0 }} {{ 123456789.123 }} {{ 1e100 }} {{ 0.1+0.2 }} {{ 1_000 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1.5e3 }}
{{ s[::-1] }} {{ s[1:3] }} {{ s[-3:] }} {{ l[::-1] }} {{ l[-1] }} {{ l[5] }} {{ s[100] }} {{ l[10:] }} {{ s[::2] }} {{ l[2:0:-1] }} {{ u[0] }} {{ u[-2:] }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ True == 1 }} {{ 'a' in s }} {{ 'H' in s }} {{ 1 in l }} {{ 9 not in l }} {{ 'a' in d }}
{{ not x }} {{ x and y }} {{ e or 'def' }} {{ n or 0 }} {{ x if t else y }} {{ x if e }} {{ (x if e) is defined }}
{{ 'a' ~ 1 ~ n ~ 2.0 ~ t ~ [1] }} {{ 'a' 'b' "c" }} {{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,3) }} {{ 'ab' * 3 }} {{ 3 * [1] }}
{{ (1,2,3) }} {{ (1,) }} {{ () }} {{ {} }} {{ {'a': 1, 2: 'b'} }} {{ [] }} {{ 1, 2 }}
{{ "\n\t\x41\u00e9\\ \' \q" }} {{ ["\n\t\x41\u00e9\\ \' \q\x01\u200b"] }}
{{ s|upper }} {{ s|lower }} {{ s|title }} {{ 'hello wORLD-foo (bar)'|title }} {{ 'hELLO'|capitalize }} {{ u|upper }} {{ '\u00df'|upper }} {{ 'x'|length }} {{ u|length }}
{{ '  a b '|trim }}| {{ 'xxaxx'|trim('x') }} {{ s|replace('l','L') }} {{ s|replace('l','L',1) }} {{ 'aaa'|replace('','-') }} {{ 5|string + 'x' }}
{{ l|sort }} {{ l|sort(reverse=true) }} {{ ls|sort }} {{ ls|sort(case_sensitive=true) }} {{ l|join(',') }} {{ m|map(attribute='role')|join('/') }} {{ m|join(', ', attribute='role') }}
{{ l|first }} {{ l|last }} {{ []|first }} {{ l|sum }} {{ l|min }} {{ l|max }} {{ []|max }} {{ ls|max }} {{ l|length }} {{ l|reverse|list }} {{ s|reverse }}
{{ m|selectattr('role','equalto','user')|list|length }} {{ m|rejectattr('content')|map(attribute='role')|list }} {{ l|select('odd')|list }} {{ l|reject('gt',1)|list }} {{ l|map('string')|list }} {{ [n,0,1]|select|list }}
{{ m|selectattr('role','in',['user','system'])|map(attribute='content')|join('|') }}
{{ [1,1,2]|unique|list }} {{ ['a','A']|unique|list }} {{ l|batch(2)|list }} {{ l|batch(2,'x')|list }} {{ l|slice(2)|list }} {{ l|slice(2,'x')|list }}
{{ d|dictsort }} {{ d|items|list }} {{ d|length }} {{ d|list }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }} {{ d.keys() }} {{ d.items() }}
{{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 3) }} {{ d.a }} {{ d['a'] }} {{ d.c.k }} {{ d.z }} {{ d['z'] is undefined }} {{ d.b.0 }} {{ d.b[1] }}
{{ d|tojson }} {{ d|tojson(indent=2) }} {{ m|tojson }} {{ q|tojson }} {{ {'b':1,'a':2}|tojson(sort_keys=true) }} {{ d|tojson(separators=(',',':')) }} {{ u|tojson }} {{ u|tojson(ensure_ascii=true) }} {{ []|tojson(indent=4) }} {{ [1.5, n, t]|tojson }} {{ {1:2}|tojson }} {{ "\u2028<>&'"|tojson }}
{{ '12'|int }} {{ '12.7'|int }} {{ 'x'|int }} {{ 'x'|int(3) }} {{ '0x1f'|int(0,16) }} {{ 3.9|int }} {{ '3.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ n|int }} {{ ' 7 '|int }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(0,'ceil') }} {{ 2.9|round(method='floor') }} {{ 7|round }} {{ -3|abs }} {{ -2.5|abs }} {{ 1234|round(-2) }}
{{ e|default('d') }} {{ e|default('d', true) }} {{ zz|default('d') }} {{ zz|d }} {{ n|default('d') }} {{ n|default('d',boolean=true) }}
{{ "a\nb\n\nc"|indent }}| {{ "a\nb"|indent(2,true) }}| {{ "a\n\nb"|indent(2,blank=true) }}| {{ 'a\nb'|indent('>>') }}
{{ 'a b c'|wordcount }} {{ 'hello world foo'|truncate(10) }} {{ 'hello world foo'|truncate(10,true) }} {{ 'hello world foo'|truncate(10,leeway=0,end='..') }} {{ 'ab'|center(7) }}| {{ q|e }} {{ q|escape }} {{ '%s-%d'|format('a',3) }} {{ '%(x)s'|format(x=1) }}
{{ '%5.2f|%-5s|%05d|%x|%r|%%' % (3.14159,'ab',42,255,'q') }} {{ '%s' % 'a' }} {{ '%s' % [1] }} {{ '{} {1}'.format(1) if false }}{{ '{} {}'.format(1,'b') }} {{ '{0:>5}|{a:<5}|{b:^5}|{c:05d}|{d:.2f}|{e:,}'.format(1,a='x',b='y',c=7,d=2.345,e=1234567) }} {{ '{!r}'.format('a') }} {{ '{{}}'.format() }} {{ '{a.k} {b[0]}'.format(a=d.c,b=l) }}
{{ s.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',',1) }} {{ 'a,b,c'.rsplit(',',1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(None,1) }} {{ ' a b c '.rsplit(None,1) }} {{ 'a\nb\r\nc'.splitlines() }} {{ 'a\nb'.splitlines(true) }}
{{ s.startswith('He') }} {{ s.startswith(('x','H')) }} {{ s.endswith('ld') }} {{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.index('W') }} {{ s.count('l') }} {{ ','.join(ls) }} {{ s.partition(' ') }} {{ s.rpartition('o') }} {{ s.partition('zz') }} {{ s.rpartition('zz') }}
{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }} {{ 'abcba'.lstrip('ab') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ 'a'.ljust(3) }}|{{ 'a'.rjust(3,'.') }} {{ 'ab'.center(5) }}| {{ "they're bill's".title() }} {{ 'aBc'.swapcase() }}
{{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ ''.isdigit() }} {{ '1.5'.isdigit() }} {{ '\u00b2'.isdigit() }} {{ u.isalpha() }}
{{ l.index(1) }} {{ l.count(2) }} {{ l.copy() }} {{ (1,2).index(2) }} {{ d.copy() }}
{{ x is number }} {{ t is number }} {{ x is integer }} {{ t is integer }} {{ f is float }} {{ s is string }} {{ d is mapping }} {{ l is iterable }} {{ s is iterable }} {{ x is iterable }} {{ l is sequence }} {{ d is sequence }} {{ n is none }} {{ zz is none }} {{ t is boolean }} {{ t is true }} {{ 1 is true }} {{ x is odd }} {{ x is even }} {{ x is divisibleby 5 }} {{ x is divisibleby(2) }} {{ x is eq 5 }} {{ x is in [5] }} {{ x is not in [5] }} {{ x is sameas x }} {{ 'a' is lower }} {{ 'A' is upper }} {{ x is gt 3 }} {{ zz is iterable }} {{ range is callable }} {{ 'upper' is filter }} {{ 'odd' is test }}
{% if x > 3 %}a{% elif x > 2 %}b{% else %}c{% endif %}{% if not t %}z{% elif n %}y{% else %}w{% endif %}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.changed(i) }};{% endfor %}
{% for i in [] %}x{% else %}empty{% endfor %}{% for i in l if i > 1 %}{{ i }}{{ loop.length }}{% else %}e{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'abc' %}{{ c }}.{% endfor %}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %} {{ range(3)|list }} {{ range(1,10,3)|list }} {{ range(5,0,-2)|list }} {{ range(3) }}
{% for i in [[1,[2,[3]]]] recursive %}{{ loop.depth }}{% if i is iterable %}{{ loop(i) }}{% else %}{{ i }}{% endif %}{% endfor %}
{% set a = 1 %}{% for i in l %}{% set a = a + i %}{{ a }}{% endfor %}{{ a }} {% set ns = namespace(v=0, w='x') %}{% for i in l %}{% set ns.v = ns.v + i %}{% endfor %}{{ ns.v }}{{ ns.w }}{{ ns.zz is defined }} {{ ns }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c %}block {{ a }}{% endset %}[{{ c }}]{% set c | upper | trim %} block {{ a }} {% endset %}[{{ c }}]
{% macro f(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(1) }} {{ f(1,3) }} {{ f(a=1,c='z') }} {{ f() }} {{ f(1,2,3)|upper }}
{% macro g(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ g(1,2,3,k=4) }} {{ g }}
{% macro h(a) %}{{ a }}{% endmacro %}{{ h(1,2) }}
{% macro h(a) %}{{ a }}{% endmacro %}{{ h(b=2) }}
{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in {{ x }}{% endcall %}
{% macro w(l) %}{% for i in l %}<{{ caller(i) }}>{% endfor %}{% endmacro %}{% call(i) w(l) %}in {{ i }}{% endcall %}
{% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n-1) }}{% endif %}{% endmacro %}{{ r(3) }}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a','b')|upper %}aaa{% endfilter %}
{% with a=1, b=x %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% with %}{% set q2 = 1 %}{{ q2 }}{% endwith %}{{ q2 }}
{% raw %}{{ x }} {% if %}{% endraw %} {% raw -%}  a {%- endraw %}|
a {#- comment -#} b {# c #} d {#+ c +#} e
  {% if t %}  x  {% endif %}  y
{%- if t -%}  x  {%- endif -%}  y
{{ x -}}   y   {{- x }}
{% generation %}gen {{ x }}{% endgeneration %} after
{% block foo %}blk{% endblock %} {% block foo2 scoped %}{{ x }}{% endblock foo2 %}
{{ raise_exception('boom ' ~ x) }}
{{ strftime_now('%Y-%m-%d %d %b %B %A %a %j %y %H:%M:%S %p %I %%') }} {{ strftime_now('%-d %e %U %W %w %u %G %V %D %F %T %R %c %x %X %C %h %f|%z|%Z') }}
{{ zz.foo }}
{{ zz['foo'] }}
{{ zz + 1 }}
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ 'a' + n }}
{{ n.foo }} {{ n.foo is defined }}
{{ n.foo.bar }}
{{ d.zz.bar }}
{{ x.foo }} {{ s.foo }} {{ l.foo }}
{{ x() }}
{{ zz() }}
{{ d.zz() }}
{{ 1 < 'a' }}
{{ n|length }}
{{ 5|length }}
{{ n|list }}
{{ n in n }}
{{ n in s }}
{% for i in n %}{% endfor %}
{% for i in 5 %}{% endfor %}
{% for a, b in l %}{% endfor %}
{% for i in zz %}x{% else %}none{% endfor %}
{{ l|nofilter }}
{{ l is notest }}
{% if false %}{{ l|nofilter }}{% endif %}ok
{{ 1/0 }}
{{ 1//0 }}
{{ 1%0 }}
{{ {}[[]] }}
{{ {[]:1} }}
{% set s.x = 1 %}
{% set zz.x = 1 %}
{% set true = 1 %}
{{ }}
{{ 1 + }}
{% if %}x{% endif %}
{% if x %}x
{% foo %}
{% endif %}
{{ (1 }}
{{ 'abc }}
{{ x is is y }}
{% for %}{% endfor %}
{{ f(a=1, 2) }}
{{ a b }}
{# unclosed
{% raw %} unclosed
{{ '\u12' }}
{{ l|map('upper')|list }} {{ ls|map('upper')|map('lower')|list }} {{ m|map(attribute='zz', default='-')|list }} {{ m|map(attribute='content.foo')|list }}
{{ m|groupby('role') }} {{ m|groupby('role')|map(attribute='grouper')|list }} {% for g, i in m|groupby('role') %}{{ g }}:{{ i|length }} {% endfor %}
{{ l|map('nope')|list }}
{{ (l|map('string')) is defined }}{{ 'y' if l|select('gt',99) else 'n' }} {{ (l|select('odd'))|length }}
{{ dict(a=1,b=2) }} {{ dict([('a',1)]) }} {{ dict({'a':1}, b=3) }} {{ namespace({'a':1}).a }}
{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }} {% set j = joiner('|') %}{{ j() }}{{ j() }}{{ j() }}
{{ [1,2,3][1:] }} {{ 'abc'[::-1] }} {{ 'abc'[5:1:-1] }} {{ (1,2,3)[:-1] }} {{ [1,2,3][:99] }} {{ [1,2,3][-99:2] }} {{ 'abc'[n:2] }} {{ d[1:] is defined }} {{ 'abc'[::0] }}
{{ [1,2,3][true] }} {{ {true: 'x'}[1] }} {{ {1: 'x'}[1.0] }} {{ l['1'] is defined }} {{ d[l] is defined }}
{{ s.upper().lower()[0:3].title() }} {{ (s ~ 'x')|upper|lower }} {{ s|upper|replace('L', '')|lower|trim('h') }} {{ -x|abs }} {{ -(x)|abs }} {{ 2 + 3|string|length }}
{{ 'a' if x == 5 else 'b' if x == 6 else 'c' }} {{ x == 5 and 'yes' or 'no' }} {{ not x == 5 }} {{ x not in l and not n }}
{{ m[0].role }} {{ m[0]['role'] }} {{ m[-1].content }} {{ m[-1].content is none }} {{ m[0].content[0] }} {{ m[1:]|length }} {{ (m|first).role }} {{ m.0.role }} {{ m[5] is defined }}
{% set loop_messages = m %}{% for message in loop_messages %}{{ '<' + message['role'] + '>' + (message['content'] or '') }}{% if not loop.last %},{% endif %}{% endfor %}
{% set x = x + 1 %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% macro a() %}{{ x }}{% set x = 3 %}{{ x }}{% endmacro %}{{ a() }}{{ x }}
{% set v = 1 %}{% macro a() %}{{ v }}{% endmacro %}{% set v = 2 %}{{ a() }}
{% for i in l %}{% set v = i %}{% macro mm() %}{{ v }}{% endmacro %}{{ mm() }}{% endfor %}
{% if t %}{% macro cm() %}C{% endmacro %}{% endif %}{{ cm() }}
{{ loop }}
{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% for i in l %}{% set outer = loop %}{% for j in l %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% print x, s %}
{{ [1, 2,] }} {{ {'a': 1,} }} {{ (1,2,) }} {{ f(1,) if false }}
{{ x.__class__ }} {{ s.__len__ }}|{{ s._x }}
{{ lipsum is defined }} {{ loop is defined }} {{ caller is defined }}
{% set x = [1,2,3] %}{% set y = x + [4] %}{{ x }}{{ y }}
{{ '%s' }}{{ '%' }}{{ '100%' ~ 'a' }}
{{ 'a\⏎b' }}
{{ [1,[2,(3,)],{'a':n}] }} {{ [1.0, 1e20, -0.0] }} {{ ['a"b', "a'b"] }}
{{ 'abc'.format(1) }} {{ 'a'.join([]) }} {{ ''.join(['a','b']) }} {{ ','.join([1]) }}
{{ 3 == '3' }} {{ none == false }} {{ [] == [] }} {{ {} == {} }} {{ (1,) == [1] }} {{ zz == yy }} {{ zz == none }} {{ zz in [1] }} {{ 'a' in zz }} {{ 1 != 2 }}
{{ 10 // 3.0 }} {{ 2 ** 0.5 }} {{ 5 % 2.5 }} {{ 1 - 0.9 }} {{ 100000000000000000000.0 }} {{ 3.0 * 2 }} {{ +x }} {{ +t }} {{ -t }} {{ t + t }}
{{ u|wordcount }} {{ u|title }} {{ u|capitalize }} {{ u.upper() }} {{ u.center(12) }}| {{ u|center(11) }}| {{ u|truncate(5,true,leeway=0) }} {{ u|reverse }} {{ u|list }} {{ u|urlencode }} {{ 'a b/c?'|urlencode }}
{{ '\u00e9' < 'z' }} {{ ['\u00e9','z','A']|sort }} {{ 'ÀÉ'|lower }} {{ 'straße'|title }} {{ 'ŉ'|upper }} {{ 'ǆ'.title() }} {{ 'İ'|lower }}|
line⏎  {% if t %}⏎  a⏎  {% endif %}⏎b⏎
{% for i in l %}⏎  {{ i }}⏎{% endfor %}⏎⏎
{% for i in l -%}⏎  {{ i }}⏎{%- endfor %}⏎
  {# c #}⏎b
  {%+ if t %}a{% endif +%}⏎b
{% if t %}   {% set a=1 %}⏎ {% endif %}⏎
{{ x }}⏎⏎
{{ x }}⏎  {%- if t %} z{% endif %}
{% raw %}⏎ a {{ }}⏎{% endraw %}⏎x
⏎⏎  {% set a = 1 %}  ⏎ b
{% set a %}⏎  x⏎{% endset %}[{{ a }}]
a{% if t %}⏎⏎b{% endif %}⏎⏎c
{%- set a = 1 -%}⏎⏎  x
{{- x -}}⏎ y
	{% if t %}	x⏎	{% endif %}y
{% if t -%}⏎ {# c -#}⏎ z {%- endif %}
{{ 'x'|attr('upper') is defined }} {{ d|attr('a') is defined }} {{ {'items': 3}['items'] }}
{% for i in l %}{% continue %}{% else %}E{% endfor %}{% for i in l %}{% break %}{% else %}F{% endfor %}{% for i in l %}{% if loop.first %}{% continue %}{% endif %}{% else %}G{% endfor %}
{{ zz|int }}
{{ zz|float }}
{{ zz|last }}|{{ zz|first }}|{{ zz|list }}|{{ zz|join }}|{{ zz|length }}|{{ zz|upper }}
{{ zz|indent }}
{{ ['', n]|select|list }} {{ none|select|list }} {{ false|map('upper')|list }}
{{ [{'a':1},{'b':2}]|sort(attribute='zz') }}
{{ [{'a':2,'b':1},{'a':1,'b':2},{'a':1,'b':1}]|sort(attribute='a,b') }}
{{ d[1:] }}
{{ l['a':] }}
{{ s['a'] is defined }}{{ s[x] }}
{{ '%s' % zz }}|{{ '' % zz }}
{{ ls|map('replace','b','B')|join(' ') }}
{{ ' a b c '.split(none, 1) }}{{ ' a b c '.rsplit(none, 1) }}
{% set ns = namespace(s='') %}{% for i in range(4) %}{% set a = ns.s ~ 'a' %}{% set b = a ~ 'b' %}{% set c = a ~ 'c' %}{% set ns.s = c %}{{ a }},{{ b }},{{ c }};{% endfor %}
{% macro f() %}{% set ns.a = 'new' %}{% endmacro %}{% set ns = namespace(a='o'*3) %}{{ ns.a ~ f() ~ ns.a }}
{% set ns = namespace(f=1) %}{% macro f() %}{% set ns.f = 2 %}x{{ ns.f }}{% endmacro %}{% set ns.f = f %}{{ ns.f() }}
{{ '{}'|max }}{{ '{}'|min }}{{ '7' >= '55' }}{{ ['b','d','a']|max }}{{ ['a','z','b','y']|sort }}{{ 'a' > 'c' }}{{ 'c' > 'a' }}
{% macro mm(a) %}{% macro nn() %}{{ kwargs }}{% endmacro %}{{ nn(z=1) }}{{ a }}{% endmacro %}{{ mm(1, c=2) }}
{%- macro inner(a) -%}[{{ a }}{{ caller() if caller is defined }}]{%- endmacro -%}{%- macro outer(b) -%}({{ inner(b ~ '!') }}{%- endmacro -%}{{ outer(s) }}
{% set messages = m %}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}{% if loop.index0 == 0 and system is not false %}{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}[{{ content }}]{% endfor %}
{% set a = 'A' -%}⏎⏎  {{- a }}⏎{%- if a %}⏎  {{ a -}}⏎{% endif %}⏎⏎end
{% for k, v in d|dictsort %}{{ k }}:{{ v|tojson }}{{ ', ' if not loop.last }}{% endfor %}
{{ '</think>' in 'a</think>b' }}{{ 'x<think>r</think>c'.split('</think>')[0].rstrip('⏎').split('<think>')[-1].lstrip('⏎') }}{{ 'a</think>b'.split('</think>')[-1] }}
{% for message in m[::-1] %}{% set index = (m|length - 1) - loop.index0 %}{{ index }}{{ message.role }}{% endfor %}
{% if d.c is mapping and d.b is sequence and d.b is not string and d.b is not mapping %}ok{% endif %}
{% for key in d|reject('in', ['a']) %}{{ key }}{% endfor %}{{ d.values()|list|tojson }}
{{ m|map(attribute='role')|unique|join(',') }} {{ m|selectattr('content')|list|length }} {{ (m|selectattr('role','eq','user')|first).content }}
{{ {'type':'object','properties':{'a':{'type':['string','null']}}}|tojson(indent=4) }}
{{ '\n'.join(['a','b'])|indent(4) }}|{{ ['x','y']|join('⏎') }}
"""

if __name__ == "__main__":
    env = environment()
    print(json.dumps({"jinja2": jinja2.__version__, "vars": VARS}, ensure_ascii=False))
    for line in TEMPLATES.strip("\n").split("\n"):
        print(json.dumps(case(env, line.replace("⏎", "\n")), ensure_ascii=False))
    print(len(TEMPLATES.split("\n")) - 2, "cases", file=sys.stderr)
