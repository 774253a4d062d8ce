ê
Ë›


LogicalNot
x

y

0
Neg
x"T
y"T"
Ttype:
2
	

NoOp
C
Placeholder
output"dtype"
dtypetype"
shapeshape:"serve*2.21.02v2.21.0-rc1-5-ga481b10260d8æ
d
XPlaceholder*'
_output_shapes
:ÿÿÿÿÿÿÿÿÿ*
dtype0*
shape:ÿÿÿÿÿÿÿÿÿ
d
BPlaceholder*'
_output_shapes
:ÿÿÿÿÿÿÿÿÿ*
dtype0
*
shape:ÿÿÿÿÿÿÿÿÿ
?
NegNegX*
T0*'
_output_shapes
:ÿÿÿÿÿÿÿÿÿ
D

LogicalNot
LogicalNotB*'
_output_shapes
:ÿÿÿÿÿÿÿÿÿ

initNoOp"ª*°
serving_defaultœ

B
B:0
ÿÿÿÿÿÿÿÿÿ

X
X:0ÿÿÿÿÿÿÿÿÿ,
NOT_B#
LogicalNot:0
ÿÿÿÿÿÿÿÿÿ!
Y
Neg:0ÿÿÿÿÿÿÿÿÿpredict